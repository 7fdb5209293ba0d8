"""The archive of a sweep: its records packed in one lab, checked and unpacked in another."""

from __future__ import annotations

import os
import re
import shutil
import struct
from collections import Counter
from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from zipfile import ZipFile

import tread_lab
from tread_lab.records.archive import Archive, ArchiveWriter, open_archive
from tread_lab.records.attempts import is_attempt
from tread_lab.records.checksums import TEXT_OR_NONE, Tree, fits
from tread_lab.records.durable import read_json, replacing, write_json, write_text
from tread_lab.records.evaluation_folder import EvaluationFolder
from tread_lab.records.lab import Lab
from tread_lab.records.locks import Busy, exclusive, is_held
from tread_lab.records.log import is_entry, read_lines
from tread_lab.records.merge import merge_runs, merge_sweep
from tread_lab.records.plan import StoredPlan
from tread_lab.records.remarks import is_remark
from tread_lab.records.run_folder import CHECKPOINT, IMPORTED, LOCK, RunFolder
from tread_lab.records.sweep_folder import SweepFolder, is_spent, is_stopped, is_suggestion
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
PACKED, PENDING = "packed", "pending"  # what became of a run

Steps = Generator[tuple[int, int], None, "Transfer"]  # yields the bytes done, and all of them


@dataclass(frozen=True)
class Transfer:
    """What was exported or imported.

    Attributes:
        runs: how many runs were packed or are new, by what became of them (`PACKED`, `NEW`, ...).
        files, bytes: of the archive.
        digest: of the archive, equal where it was written and where it is read.
        made_by: the version of tread-lab that wrote it.
        lines: what is said of single runs, and of what an import has left out.
    """

    sweep: str
    runs: Counter[str]
    files: int
    bytes: int
    digest: str
    made_by: str
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
        with replacing(out) as temporary, ZipFile(temporary, "w") as packed:
            writer = ArchiveWriter(packed)
            for part in parts:
                with _still(part) if part in runs and part.path.is_dir() else nullcontext():
                    for entry, path in _files_of(lab, part, weights):
                        _check_record(path)
                        for size in writer.add(entry, path) if entry not in writer.files else ():
                            done += size
                            yield done, total
                        _check_checkpoint(path, writer.files[entry]["sha256"])
            digest = writer.close(sweep=name, weights=weights)
    begun = {entry.split("/")[1] for entry in writer.files if entry.startswith("runs/")}
    counts = Counter({PACKED: len(begun), PENDING: len(runs) - len(begun)})
    return Transfer(name, counts, len(writer.files), done, digest, tread_lab.__version__, weights)


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
    """Refuse a checkpoint whose bytes are not those that its name says."""
    named = CHECKPOINT.fullmatch(path.name)
    if named and digest[:16] != named["digest"]:
        raise UserError(
            f"{path} is damaged (checksum); the sweep's command trains its run again where it is"
            " needed, and --without-weights leaves all weights out"
        )


def import_sweep(lab: Lab, path: Path, name: str | None = None) -> Steps:
    """Merge the sweep of an archive into a lab, after all of it has been checked.

    Runs come first, each by one rename, and the sweep's plan last. An import that is killed leaves
    whole runs or nothing, and the next one goes on.

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
            done = yield from archive.unpack(unpacked, others)
            plan = _checked_plan(archive, unpacked, of_runs, name)
            sweep = lab.sweep(plan.name)
            takes_plan = _check_same_sweep(sweep, plan, unpacked)
            _check_references(archive, lab, unpacked)
            yield from archive.unpack(unpacked, of_runs, done)
            if damaged := passed_over(unpacked):
                raise archive.refused(f"{damaged[0]} is no record of this version")
            _check_weights(archive, unpacked)
            os.sync()
            runs, lines = merge_runs(lab, stage)
            try:
                merge_sweep(sweep, stage, takes_plan=takes_plan)
            except Busy as busy:
                if takes_plan:
                    raise
                lines = (*lines, f"{busy}; what was stopped, spent and said: import again after it")
            sweep.drawn_path.unlink(missing_ok=True)  # its figures may be of fewer runs
        finally:
            shutil.rmtree(stage, ignore_errors=True)
    files, head = len(archive.files), archive.head
    made_by, weights = str(head.get("tread_lab")), bool(head.get("weights"))
    return Transfer(plan.name, runs, files, archive.size, archive.digest, made_by, weights, lines)


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


_IS_RECORD: Mapping[str, Callable[[Tree], bool]] = {
    "log.jsonl": is_entry,
    "attempts.jsonl": is_attempt,
    "remarks.jsonl": is_remark,
    "asked.jsonl": is_suggestion,
    "stopped.jsonl": is_stopped,
    "spent.jsonl": is_spent,
}
# What reads each of these files finds nothing in one that is no record.
_READ: Mapping[str, Callable[[Path], Any]] = {
    "result.json": lambda path: RunFolder(path.parent).result(),
    "metrics.json": lambda path: EvaluationFolder(path.parent).read(),
    "origin.json": lambda path: RunFolder(path.parent).origin(),
    "keep_steps.json": lambda path: RunFolder(path.parent).kept_steps(),
    "data.json": lambda path: fits(read_json(path), {"path": TEXT_OR_NONE}),
    "spec.yaml": lambda path: RunFolder(path.parent).spec_tree(),
}


def passed_over(folder: Path) -> list[str]:
    """Return the files below a folder that are damaged, or no records of this version."""
    files = (path for path in sorted(folder.rglob("*")) if _is_passed_over(path))
    return [path.relative_to(folder).as_posix() for path in files]


def _is_passed_over(path: Path) -> bool:
    """Return whether the reader of a record finds something in it that is none."""
    is_record, read = _IS_RECORD.get(path.name), _READ.get(path.name)
    if is_record is not None:  # a crash leaves no whole line that is none
        return not all(map(is_record, read_lines(path)))
    return read is not None and not read(path)


def _check_record(path: Path) -> None:
    """Refuse to pack a record that would be refused where it is imported."""
    if _is_passed_over(path):
        raise UserError(
            f"{path} is damaged, or no record of this version; move it away, and the sweep's"
            " command makes again what it lacks"
        )


def _check_weights(archive: Archive, unpacked: Path) -> None:
    """Refuse what is no checkpoint; mark the runs that come without any."""
    for entry, facts in archive.files.items():
        if named := CHECKPOINT.fullmatch(Path(entry).name):
            with (unpacked / entry).open("rb") as file:  # a JSON header follows its length
                start, size = file.read(9), facts["bytes"] - 8
            fits = start[8:] == b"{" and struct.unpack("<Q", start[:8])[0] <= size
            if not (fits and facts["sha256"].startswith(named["digest"])):
                raise archive.refused(f"{entry} is not the checkpoint that its name says")
    for folder in Lab(unpacked).runs():
        if (folder.log_path.exists() or folder.result()) and not folder.checkpoints.exists():
            write_json(folder.path / IMPORTED, {"archive": archive.digest, "weights": False})


def _check_same_sweep(sweep: SweepFolder, stored: StoredPlan, unpacked: Path) -> bool:
    """Return whether the archive's plan is new here or goes further; `False` keeps the lab's."""
    mine = sweep.stored_plan()
    if mine is None:
        return True
    here, there = _cells(sweep.plan()), _cells(SweepFolder(unpacked / "sweep").plan())
    if mine.search != stored.search or not (here <= there or there <= here):
        raise UserError(
            f"sweep {sweep.name} of this lab has another plan: {counted(len(here), 'item')},"
            f" {len(there)} in the archive, {len(here & there)} in both; --as NAME imports it under"
            " another name"
        )
    return here < there


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
