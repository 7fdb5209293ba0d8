"""The archive of a sweep: its records packed in one lab, checked and unpacked in another."""

from __future__ import annotations

import filecmp
import hashlib
import os
import re
import shutil
import struct
from collections import Counter
from collections.abc import Generator, Iterable, Iterator
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from zipfile import ZipFile

from tread_lab.records.archive import Archive, add, open_archive
from tread_lab.records.checksums import fits
from tread_lab.records.damage import is_passed_over, passed_over
from tread_lab.records.durable import read_json, replacing, write_text, writing
from tread_lab.records.lab import Lab
from tread_lab.records.locks import Busy, exclusive, is_held
from tread_lab.records.plan import StoredPlan
from tread_lab.records.run_folder import CHECKPOINT, LOCK, RunFolder
from tread_lab.records.sweep_folder import SweepFolder
from tread_lab.specs.errors import UserError
from tread_lab.specs.units import counted

STAGE = ".import"  # the folder of a lab where an import unpacks; the next one empties it
# What an archive may hold: records that no reader runs. Figures and reports are drawn again, and a
# study and MLflow's store are made again.
_EXPECTED = re.compile(
    r"""sweep/(plan|plans/\d{4})\.json | sweep/(asked|spent|stopped|remarks)\.jsonl
    | references/[A-Za-z0-9][\w.+-]*\.json
    | runs/[0-9a-f]{16}/(
        spec\.yaml | (data|origin|keep_steps|result)\.json | (attempts|log|remarks)\.jsonl
        | stacks/attempt-\d+\.txt | evaluations/[0-9a-f]{16}/[\w-]+\.(json|npy|npz|png)
        | checkpoints/step-\d{8}-[0-9a-f]{16}\.safetensors)""",
    re.VERBOSE | re.ASCII,
)
# What became of a run.
PACKED, PENDING = "packed", "pending"
NEW, HERE, DIFFERENT = "new", "here", "different"

Steps = Generator[tuple[int, int], None, "Transfer"]  # yields the bytes done, and all of them


@dataclass(frozen=True)
class Transfer:
    """What was exported or imported.

    Attributes:
        runs: how many runs there are, by what became of them (`PACKED`, `NEW`, ...).
        files, bytes: of the archive.
        lines: what is said of single runs, and of what an import has left out.
    """

    sweep: str
    runs: Counter[str]
    files: int
    bytes: int
    weights: bool
    lines: tuple[str, ...] = ()


def export_sweep(lab: Lab, name: str, out: Path, *, weights: bool = True) -> Steps:
    """Write the archive of a sweep: plan, runs, baselines, parents; with or without checkpoints.

    The sweep is locked meanwhile, and each run while it is read.

    Raises:
        UserError: the file exists, a record or a checkpoint is damaged, or somebody works at the
            sweep.
    """
    folder = lab.sweep(name)
    if out.exists() or out.is_symlink():
        raise UserError(f"{out} exists; name another file")
    with _still(folder):
        runs = [lab.run(run) for run in _runs(folder.plan())]
        parts: list[SweepFolder | RunFolder] = [folder, *runs]
        listed = (path for part in parts for _, path in _files_of(lab, part, weights))
        total, done = sum(path.stat().st_size for path in listed), 0
        entries: set[str] = set()
        with replacing(out) as temporary, ZipFile(temporary, "w") as packed:
            for part in parts:
                with _still(part) if part in runs and part.path.is_dir() else nullcontext():
                    for entry, path in _files_of(lab, part, weights):
                        if entry in entries:  # a reference of several runs
                            continue
                        entries.add(entry)
                        _check_record(path)
                        sha256 = hashlib.sha256()
                        for chunk in add(packed, entry, path):
                            sha256.update(chunk)
                            done += len(chunk)
                            yield done, total
                        _check_checkpoint(path, sha256.hexdigest())
    begun = {entry.split("/")[1] for entry in entries if entry.startswith("runs/")}
    counts = Counter({PACKED: len(begun), PENDING: len(runs) - len(begun)})
    return Transfer(name, counts, len(entries), done, _has_weights(entries))


def _runs(plan: StoredPlan) -> list[str]:
    """Return the runs of a plan, those that they start from or are compared with included."""
    return list(dict.fromkeys([*plan.runs(), *plan.baselines]))


@contextmanager
def _still(folder: SweepFolder | RunFolder) -> Iterator[None]:
    """Keep others from writing to a folder; where one may only read, see that nobody does.

    Raises:
        Busy: somebody does.
    """
    with ExitStack() as held:
        try:
            if os.access(folder.path, os.W_OK):
                held.enter_context(folder.lock())
            elif is_held(folder.path / LOCK):
                raise Busy(f"{folder.path} is in use by another process")
        except Busy as busy:
            raise Busy(f"{busy}; export when it has ended, or stop it by Ctrl-C first") from None
        yield


def _files_of(lab: Lab, part: SweepFolder | RunFolder, weights: bool) -> Iterator[tuple[str, Path]]:
    """Yield name and path of every record of a sweep or a run, and of references it names."""
    prefix = f"runs/{part.name}" if isinstance(part, RunFolder) else "sweep"
    for parent, _, names in os.walk(part.path, followlinks=True):
        for name in sorted(names):
            path = Path(parent, name)
            entry = f"{prefix}/{path.relative_to(part.path).as_posix()}"
            if _EXPECTED.fullmatch(entry) and (weights or not CHECKPOINT.fullmatch(name)):
                yield entry, path
    for evaluation in part.evaluations() if isinstance(part, RunFolder) else ():
        reference = ((evaluation.read() or {}).get("spec") or {}).get("reference") or {}
        path = lab.root / "references" / f"{reference.get('name')}.json"
        if path.is_file():
            yield f"references/{path.name}", path


def _check_checkpoint(path: Path, digest: str) -> None:
    """Refuse to pack a checkpoint whose bytes are not those that its name says."""
    if not _is_as_named(path, digest):
        raise UserError(
            f"{path} is damaged (checksum); the sweep's command trains its run again where it is"
            " needed, and --without-weights leaves all weights out"
        )


def _is_as_named(path: Path, digest: str) -> bool:
    """Return whether a file is the checkpoint that its name says, or has no name of one."""
    named = CHECKPOINT.fullmatch(path.name)
    if named is None:
        return True
    with path.open("rb") as file:  # a JSON header follows its length
        start, size = file.read(9), path.stat().st_size - 8
    header = start[8:] == b"{" and struct.unpack("<Q", start[:8])[0] <= size
    return header and digest.startswith(named["digest"])


def import_sweep(lab: Lab, path: Path, name: str | None = None) -> Steps:
    """Move the sweep and the runs of an archive into a lab, after all of it has been checked.

    Each run that the lab lacks comes by one rename, and the sweep last: an import that is killed
    leaves whole runs or nothing, and the next one goes on. What the lab has stays as it is.

    Args:
        name: of the sweep here, if not the one that it has.

    Raises:
        UserError: the archive is damaged or foreign, or the lab has another sweep of this name.
    """
    if name is not None:
        lab.sweep(name)  # refuses what is no name
    archive = open_archive(path, _EXPECTED)
    archive.check_room(lab.root)
    stage, unpacked = lab.root / STAGE, lab.root / STAGE / "new"
    with exclusive(stage / LOCK, f"the import into {lab.root}"):
        try:
            for path in stage.iterdir():  # of a killed import
                if path.name != LOCK:
                    shutil.rmtree(path)
            of_runs = [entry for entry in archive.files if entry.startswith("runs/")]
            others = [entry for entry in archive.files if not entry.startswith("runs/")]
            done = yield from _unpack(archive, unpacked, others)
            plan = _checked_plan(archive, unpacked, of_runs, name)
            sweep = lab.sweep(plan.name)
            _check_same_sweep(sweep, plan, unpacked)
            _check_references(archive, lab, unpacked)
            yield from _unpack(archive, unpacked, of_runs, done)
            if damaged := passed_over(unpacked):
                raise archive.refused(f"{damaged[0]} is no record of this version")
            os.sync()
            runs, lines = _move_runs(lab, unpacked)
            for path in unpacked.glob("references/*.json"):
                if not (target := lab.root / "references" / path.name).exists():
                    _move(path, target)
            if sweep.plan_path.exists():
                lines.append(f"sweep {sweep.name} is here, and stays: its plan, stops and hours")
            else:
                if sweep.path.exists():  # without a plan
                    _move(sweep.path, stage / "old")
                _move(unpacked / "sweep", sweep.path)
            sweep.drawn_path.unlink(missing_ok=True)  # its figures may be of fewer runs
        finally:
            shutil.rmtree(stage, ignore_errors=True)
    weights, size = _has_weights(archive.files), archive.size
    return Transfer(plan.name, runs, len(archive.files), size, weights, tuple(lines))


def _has_weights(entries: Iterable[str]) -> bool:
    return any(CHECKPOINT.fullmatch(Path(entry).name) for entry in entries)


def _unpack(
    archive: Archive, folder: Path, entries: Iterable[str], done: int = 0
) -> Generator[tuple[int, int], None, int]:
    """Write files below a folder; refuse what is no checkpoint under the name of one.

    Args:
        done: bytes that were unpacked before.
    """
    with ZipFile(archive.path) as packed:
        for entry in entries:
            sha256 = hashlib.sha256()
            for chunk in archive.unpack(packed, entry, folder / entry):
                sha256.update(chunk)
                done += len(chunk)
                yield done, archive.size
            if not _is_as_named(folder / entry, sha256.hexdigest()):
                raise archive.refused(f"{entry} is not the checkpoint that its name says")
    return done


def _move_runs(lab: Lab, unpacked: Path) -> tuple[Counter[str], list[str]]:
    """Move the runs that a lab lacks into it.

    Returns:
        how many runs became what, and a line for each that is here with other files.
    """
    became, lines = Counter[str](), list[str]()
    filecmp.clear_cache()  # of files that had these names in an earlier import
    for theirs in Lab(unpacked).runs():
        mine = lab.run(theirs.name)
        if not mine.path.exists():
            _move(theirs.path, mine.path)
            became[NEW] += 1
        elif _has_all(mine.path, theirs.path):
            became[HERE] += 1
        else:
            became[DIFFERENT] += 1
            here, there = (f"{run.state()} at step {run.step()}" for run in (mine, theirs))
            once = " once its process has ended" if mine.locked else ""
            lines.append(
                f"run {mine.name} differs from the archive's, and stays as it is here: {here}, for"
                f" {there}; to have that one, delete {mine.path}{once}, then import again"
            )
    return became, lines


def _has_all(mine: Path, theirs: Path) -> bool:
    """Return whether a folder holds every file of another, as it is there."""
    files = (path for path in theirs.rglob("*") if path.is_file())
    return all(_is_same(mine / path.relative_to(theirs), path) for path in files)


def _is_same(mine: Path, theirs: Path) -> bool:
    named = CHECKPOINT.fullmatch(theirs.name)  # by its content
    return mine.is_file() and (named is not None or filecmp.cmp(mine, theirs, shallow=False))


def _move(source: Path, target: Path) -> None:
    with writing(target):
        target.parent.mkdir(parents=True, exist_ok=True)
        source.replace(target)


def _checked_plan(
    archive: Archive, unpacked: Path, of_runs: list[str], name: str | None
) -> StoredPlan:
    """Return the archive's plan, stored under `name`; refuse files of a run that it lacks."""
    sweep = SweepFolder(unpacked / "sweep")
    try:
        stored, runs = sweep.stored_plan(), set(_runs(sweep.plan()))
        assert stored is not None
    except (UserError, AssertionError, LookupError, TypeError, AttributeError, RecursionError):
        raise archive.refused("sweep/plan.json is no plan of this version") from None
    for entry in of_runs:
        if entry.split("/")[1] not in runs:
            raise archive.refused(f"{entry} is of a run that the plan does not have")
    if name is not None and name != stored.name:
        stored = replace(stored, name=name)
        write_text(sweep.plan_path, stored.text())
    return stored


def _check_record(path: Path) -> None:
    """Refuse to pack a record that would be refused where it is imported."""
    if is_passed_over(path):
        raise UserError(
            f"{path} is damaged, or no record of this version; move it away, and the sweep's"
            " command makes again what it lacks"
        )


def _check_same_sweep(sweep: SweepFolder, stored: StoredPlan, unpacked: Path) -> None:
    """Refuse a sweep of which the lab has another plan under its name."""
    mine = sweep.stored_plan()
    if mine is None:
        return
    here, there = _cells(sweep.plan()), _cells(SweepFolder(unpacked / "sweep").plan())
    if mine.search != stored.search or here != there:
        raise UserError(
            f"sweep {sweep.name} of this lab has another plan: {counted(len(here), 'item')},"
            f" {len(there)} in the archive, {len(here & there)} in both; --as NAME imports it under"
            " another name"
        )


def _cells(plan: StoredPlan) -> set[tuple[str | None, ...]]:
    """Return what a plan runs, compares and measures."""
    return {(t.run, t.baseline) for t in plan.trials} | {("measure", e) for e in plan.planned}


def _check_references(archive: Archive, lab: Lab, unpacked: Path) -> None:
    """Refuse evaluations that compare with another file than this lab's under the same name."""
    for path in unpacked.glob("references/*.json"):
        known, theirs = (read_json(p) for p in (lab.root / "references" / path.name, path))
        if not isinstance(theirs, dict) or not isinstance(theirs.get("sha256"), str):
            raise archive.refused(f"references/{path.name} names no file")
        if fits(known, {"sha256": str}) and known["sha256"] != theirs["sha256"]:
            raise archive.refused(
                f"its runs compare with another file than this lab's as reference {path.stem};"
                " import it into a lab of its own (--root)"
            )
