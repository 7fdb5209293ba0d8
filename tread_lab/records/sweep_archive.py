"""The archive of a sweep: a zip of its records, packed in one lab, checked and moved to another."""

from __future__ import annotations

import calendar
import filecmp
import hashlib
import os
import re
import shutil
import stat
import time
import zlib
from collections import Counter
from collections.abc import Generator, Iterable, Iterator
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from zipfile import ZIP_DEFLATED, ZIP_STORED, BadZipFile, ZipFile, ZipInfo

from tread_lab.records.checksums import fits
from tread_lab.records.damage import is_passed_over
from tread_lab.records.durable import DiskFull, read_json, replacing, write_text, writing
from tread_lab.records.lab import Lab
from tread_lab.records.locks import Busy, exclusive, is_held
from tread_lab.records.plan import StoredPlan
from tread_lab.records.run_folder import CHECKPOINT, LOCK, RunFolder
from tread_lab.records.sweep_folder import SweepFolder
from tread_lab.specs.errors import UserError, first_line
from tread_lab.specs.units import amount, counted

STAGE = ".import"  # the folder of a lab where an import unpacks; the next one empties it
# What an archive may hold: records that no reader runs. Figures and reports are drawn again, and a
# study and MLflow's store are made again.
_EXPECTED = re.compile(
    r"""sweep/(plan|plans/\d{4})\.json | sweep/(asked|spent|stopped|remarks)\.jsonl
    | references/[A-Za-z0-9][\w.+-]*\.json
    | runs/[0-9a-f]{16}/(
        spec\.yaml | (data|origin|keep_steps|evaluation_defaults|result)\.json
        | (attempts|log|remarks)\.jsonl | stacks/attempt-\d+\.txt
        | evaluations/[0-9a-f]{16}/[\w-]+\.(json|npy|npz|png)
        | checkpoints/step-\d{8}-[0-9a-f]{16}\.safetensors)""",
    re.VERBOSE | re.ASCII,
)
_MANIFEST = "manifest.json"  # of earlier archives: sizes and digests of all files
_TEXT = (".json", ".jsonl", ".yaml", ".txt")  # what is worth packing; tensors and pictures are not
_CHUNK = 1 << 20
_FIRST = (1980, 1, 1, 0, 0, 0)  # the earliest time of a zip file; earlier archives say no other
_BROKEN = (BadZipFile, zlib.error, EOFError, NotImplementedError, RuntimeError, OSError, ValueError)
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
                        if why := _damage(path):
                            remade = "move it away, and the sweep's command makes what it lacks"
                            raise UserError(f"{path} {why}; {remade}")
                        for size in _pack(packed, entry, path):
                            done += size
                            yield done, total
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


def _damage(path: Path) -> str:
    """Return what is wrong with a record or a checkpoint; nothing where its readers take it."""
    if is_passed_over(path):
        return "is damaged, or no record of this version"
    if named := CHECKPOINT.fullmatch(path.name):
        with path.open("rb") as file:
            if not hashlib.file_digest(file, "sha256").hexdigest().startswith(named["digest"]):
                return "is not the checkpoint that its name says"
    return ""


def _pack(packed: ZipFile, name: str, path: Path) -> Iterator[int]:
    """Add a file under a name, with its time in UTC; yield how many bytes were added."""
    written = time.gmtime(path.stat().st_mtime)[:6]
    entry = ZipInfo(name, max(written, _FIRST))
    entry.compress_type = ZIP_DEFLATED if name.endswith(_TEXT) else ZIP_STORED
    entry.external_attr = (stat.S_IFREG | 0o644) << 16
    with path.open("rb") as source, packed.open(entry, "w", force_zip64=True) as target:
        while chunk := source.read(_CHUNK):
            target.write(chunk)
            yield len(chunk)


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
    try:
        return (yield from _import(lab, path, name))
    except _Refused as why:
        raise UserError(f"{path}: {why}; nothing was imported") from None


class _Refused(Exception):
    """What is wrong with an archive, of which nothing is imported."""


def _import(lab: Lab, path: Path, name: str | None) -> Steps:
    files = _files_in(path)
    size, done = sum(file.file_size for file in files.values()), 0
    _check_room(path, size, lab.root)
    stage, unpacked = lab.root / STAGE, lab.root / STAGE / "new"
    with exclusive(stage / LOCK, f"the import into {lab.root}"):
        try:
            for left in stage.iterdir():  # by a killed import
                if left.name != LOCK:
                    shutil.rmtree(left)
            with ZipFile(path) as packed:
                for entry in files.values():
                    for count in _unpack(packed, entry, unpacked / entry.filename):
                        done += count
                        yield done, size
                    if why := _damage(unpacked / entry.filename):
                        raise _Refused(f"{entry.filename} {why}")
            plan = _checked_plan(files, unpacked, name)
            sweep = lab.sweep(plan.name)
            _check_same_sweep(sweep, plan, unpacked)
            _check_references(lab, unpacked)
            os.sync()
            runs, lines = _move_runs(lab, unpacked)
            for reference in unpacked.glob("references/*.json"):
                if not (target := lab.root / "references" / reference.name).exists():
                    _move(reference, target)
            if sweep.plan_path.exists():
                lines.append(f"sweep {sweep.name} is here, and stays: its plan, stops and hours")
            else:
                if sweep.path.exists():  # with the lock of a killed driver
                    _move(sweep.path, stage / "old")
                _move(unpacked / "sweep", sweep.path)
            sweep.drawn_path.unlink(missing_ok=True)  # its figures may be of fewer runs
        finally:
            shutil.rmtree(stage, ignore_errors=True)
    return Transfer(plan.name, runs, len(files), size, _has_weights(files), tuple(lines))


def _has_weights(entries: Iterable[str]) -> bool:
    return any(CHECKPOINT.fullmatch(Path(entry).name) for entry in entries)


def _files_in(path: Path) -> dict[str, ZipInfo]:
    """Return what an archive holds: plain files with expected names, each once.

    Raises:
        UserError: it is no archive, is cut off, or holds something else; says what.
    """
    try:
        with ZipFile(path) as packed:
            entries = packed.infolist()
    except (FileNotFoundError, IsADirectoryError, PermissionError) as error:
        raise UserError(f"cannot read {path}: {error.strerror}") from None
    except _BROKEN as error:
        raise _Refused(f"cut off, or no archive of a sweep ({first_line(error)})") from None
    files: dict[str, ZipInfo] = {}
    for entry in entries:
        name = entry.filename
        if name == _MANIFEST:
            continue
        if name in files or not _EXPECTED.fullmatch(name):
            again = "holds it twice" if name in files else "no archive of a sweep holds it"
            raise _Refused(f"{name}: {again}")
        if stat.S_IFMT(entry.external_attr >> 16) not in (0, stat.S_IFREG):
            raise _Refused(f"{name} is a link or no plain file")
        files[name] = entry
    return files


def _check_room(path: Path, size: int, folder: Path) -> None:
    """Refuse an archive that does not fit on the disk where `folder` lies or will lie."""
    place = next(place for place in (folder, *folder.parents) if place.exists())
    free = shutil.disk_usage(place).free
    if size > free:
        sizes = f"{amount(size)} unpacked, {amount(free)} are free in {place}"
        raise DiskFull(f"{path}: {sizes}; make room, or name another --root")


def _unpack(packed: ZipFile, entry: ZipInfo, target: Path) -> Iterator[int]:
    """Write a file with its time; yield how many bytes were written.

    Raises:
        _Refused: the file is damaged (CRC); names it.
    """
    with writing(target):
        target.parent.mkdir(parents=True, exist_ok=True)
        with target.open("xb") as file:
            for chunk in _chunks(packed, entry):
                file.write(chunk)
                yield len(chunk)
        if entry.date_time > _FIRST:
            os.utime(target, 2 * (calendar.timegm(entry.date_time),))


def _chunks(packed: ZipFile, entry: ZipInfo) -> Iterator[bytes]:
    try:
        with packed.open(entry) as source:
            while chunk := source.read(_CHUNK):
                yield chunk
    except _BROKEN as error:
        why = f"{entry.filename} is damaged or changed ({first_line(error)})"
        raise _Refused(why) from None


def _move_runs(lab: Lab, unpacked: Path) -> tuple[Counter[str], list[str]]:
    """Move the runs that a lab lacks into it.

    Returns:
        how many runs became what, and a line for each that is here with other files.
    """
    became, lines = Counter[str](), list[str]()
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
    files = ((mine / p.relative_to(theirs), p) for p in theirs.rglob("*") if p.is_file())
    return all(
        own.is_file() and (CHECKPOINT.fullmatch(p.name) or filecmp.cmp(own, p, shallow=False))
        for own, p in files  # a checkpoint is named by its content
    )


def _move(source: Path, target: Path) -> None:
    with writing(target):
        target.parent.mkdir(parents=True, exist_ok=True)
        source.replace(target)


def _checked_plan(files: Iterable[str], unpacked: Path, name: str | None) -> StoredPlan:
    """Return the archive's plan, stored under `name`; refuse files of a run that it lacks."""
    sweep = SweepFolder(unpacked / "sweep")
    try:
        stored, runs = sweep.stored_plan(), set(_runs(sweep.plan()))
        assert stored is not None
    except (UserError, AssertionError, LookupError, TypeError, AttributeError, RecursionError):
        raise _Refused("sweep/plan.json is no plan of this version") from None
    for entry in files:
        if entry.startswith("runs/") and entry.split("/")[1] not in runs:
            raise _Refused(f"{entry} is of a run that the plan does not have")
    if name is not None and name != stored.name:
        stored = replace(stored, name=name)
        write_text(sweep.plan_path, stored.text())
    return stored


def _check_same_sweep(sweep: SweepFolder, stored: StoredPlan, unpacked: Path) -> None:
    """Refuse a sweep of which the lab has another plan, or other files, under its name."""
    mine = sweep.stored_plan()
    if mine is None:
        if any(path.name != LOCK for path in sweep.path.glob("*")):
            raise UserError(
                f"{sweep.path} has files and no plan; move it away, or --as NAME imports the sweep"
                " under another name"
            )
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


def _check_references(lab: Lab, unpacked: Path) -> None:
    """Refuse evaluations that compare with another file than this lab's under the same name."""
    for file in unpacked.glob("references/*.json"):
        known, theirs = (read_json(p) for p in (lab.root / "references" / file.name, file))
        if not isinstance(theirs, dict) or not isinstance(theirs.get("sha256"), str):
            raise _Refused(f"references/{file.name} names no file")
        if fits(known, {"sha256": str}) and known["sha256"] != theirs["sha256"]:
            raise _Refused(
                f"its runs compare with another file than this lab's as reference {file.stem};"
                " import it into a lab of its own (--root)",
            )
