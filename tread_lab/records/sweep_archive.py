"""The archive of a sweep: its records packed in one lab, and merged into another."""

from __future__ import annotations

import os
import re
import shutil
import struct
import uuid
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
from tread_lab.records.checksums import Tree
from tread_lab.records.durable import read_json, replacing, write_json, write_text, writing
from tread_lab.records.kinds import TEXT_OR_NONE, fits
from tread_lab.records.lab import Lab
from tread_lab.records.locks import Busy, exclusive, is_held
from tread_lab.records.log import is_changed, is_entry
from tread_lab.records.plan import StoredPlan
from tread_lab.records.remarks import is_remark
from tread_lab.records.run_folder import IMPORTED, LOCK, EvaluationFolder, RunFolder
from tread_lab.records.status import RunState
from tread_lab.records.sweep_folder import SweepFolder, is_spent, is_stopped, is_suggestion
from tread_lab.specs.errors import UserError
from tread_lab.specs.evaluation import in_words
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
_CHECKPOINT = re.compile(r".*/step-(?P<step>\d{8})-(?P<digest>[0-9a-f]{16})\.safetensors")
# What became of a run.
PACKED, PENDING = "packed", "pending"
NEW, KEPT, ADDED, TAKEN, BUSY = "new", "kept", "added", "taken", "busy"
HAS_WEIGHTS = "has weights"

Steps = Generator[tuple[int, int], None, "Transfer"]  # yields the bytes done, and all of them


@dataclass(frozen=True)
class Transfer:
    """What was exported or imported.

    Attributes:
        runs: how many runs were packed or are new, by what became of them (`PACKED`, `NEW`, ...).
        files, bytes: of the archive.
        digest: of the archive, equal where it was written and where it is read.
        made_by: the version of tread-lab that wrote it.
        lines: what is said of single runs.
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
                        _check_checkpoint(path, entry, writer.files[entry]["sha256"])
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
            if _EXPECTED.fullmatch(entry) and (weights or not _CHECKPOINT.fullmatch(entry)):
                yield entry, path
    for evaluation in part.evaluations() if isinstance(part, RunFolder) else ():
        reference = ((evaluation.read() or {}).get("spec") or {}).get("reference") or {}
        path = lab.root / "references" / f"{reference.get('name')}.json"
        if path.is_file():
            yield f"references/{path.name}", path


def _check_checkpoint(path: Path, entry: str, digest: str) -> None:
    """Refuse a checkpoint whose bytes are not those that its name says."""
    named = _CHECKPOINT.fullmatch(entry)
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
            _check_records(archive, unpacked)
            _check_weights(archive, unpacked)
            os.sync()
            pairs = [(lab.run(run.name), run) for run in Lab(unpacked).runs()]
            became = [_merge_run(*pair, stage) for pair in pairs]
            kept = (pair for pair, what in zip(pairs, became) if what == HAS_WEIGHTS)
            runs, lines = Counter(became), tuple(_why_kept(*pair) for pair in kept)
            for path in unpacked.glob("references/*.json"):
                if not (target := lab.root / "references" / path.name).exists():
                    _move(path, target, stage)
            if takes_plan:
                _merge_sweep(sweep, stage)
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
    return bool(is_record and is_changed(path, is_record)) or bool(read and not read(path))


def _check_record(path: Path) -> None:
    """Refuse to pack a record that would be refused where it is imported."""
    if _is_passed_over(path):
        raise UserError(
            f"{path} is damaged, or no record of this version; move it away, and the sweep's"
            " command makes again what it lacks"
        )


def _check_records(archive: Archive, unpacked: Path) -> None:
    """Refuse a record that its reader would pass over, though it is whole."""
    for entry in archive.files:
        if _is_passed_over(unpacked / entry):
            raise archive.refused(f"{entry} is no record of this version")


def _check_weights(archive: Archive, unpacked: Path) -> None:
    """Refuse what is no checkpoint; mark the runs that come without any."""
    for entry, facts in archive.files.items():
        if named := _CHECKPOINT.fullmatch(entry):
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


def _merge_run(mine: RunFolder, theirs: RunFolder, stage: Path) -> str:
    """Move a run into the lab, unless the lab has got as far, or would lose weights; return what
    became of it.

    Of the same execution the lab gets what it lacks: evaluations, and weights if it has none.
    """
    if not mine.path.exists():
        _move(theirs.path, mine.path, stage)
        return NEW
    try:
        with mine.lock():
            logs = [r.log_path.read_bytes() if r.log_path.exists() else b"" for r in (mine, theirs)]
            if mine.result() == theirs.result() and logs[0] == logs[1]:  # logs hold times
                return ADDED if _add_parts(mine, theirs, stage) else KEPT
            if _progress(theirs) <= _progress(mine):
                return KEPT
            if _lost_weights(mine, theirs):
                return HAS_WEIGHTS
            _join_lines(mine.remarks.path, theirs.remarks.path)
            _move(theirs.path, mine.path, stage)
            return TAKEN
    except Busy:
        return BUSY


def _progress(run: RunFolder) -> tuple[bool, int]:
    """Return whether a run has a result, and its step; that it was asked to stop is none."""
    return run.result() is not None and run.state() is not RunState.FAILED, run.step()


def _lost_weights(mine: RunFolder, theirs: RunFolder) -> list[int]:
    """Return the steps whose weights a run of the lab would lose to the archive's: those that
    people asked to keep, and those that are further than all of the archive's."""
    brought = _weights(theirs)
    asked, furthest = mine.asked_steps(), max(brought, default=0)
    return sorted(s for s in _weights(mine) - brought if s in asked or s > furthest)


def _weights(run: RunFolder) -> set[int]:
    """Return the steps of a run's checkpoints."""
    names = (_CHECKPOINT.fullmatch(path.as_posix()) for path in run.checkpoints.glob("*"))
    return {int(named["step"]) for named in names if named}


def _why_kept(mine: RunFolder, theirs: RunFolder) -> str:
    """Return why the archive's run, which is further, does not replace the lab's."""
    return (
        f"run {mine.name} stays at step {mine.step()}: the archive has it at step {theirs.step()}"
        f" without the weights of step {in_words(_lost_weights(mine, theirs))}, which this lab has;"
        f" export it with weights, or delete {mine.checkpoints}, then import again"
    )


def _join_lines(mine: Path, theirs: Path) -> None:
    """Put the lines of a record of the lab before those that arrive under the same name."""
    if mine.exists():
        own, new = (
            path.read_text(encoding="utf-8").splitlines() if path.exists() else []
            for path in (mine, theirs)
        )
        lines = [*own, *(line for line in new if line not in own)]
        write_text(theirs, "".join(f"{line}\n" for line in lines))


def _add_parts(mine: RunFolder, theirs: RunFolder, stage: Path) -> bool:
    """Add the evaluations and the weights that the lab lacks of a run; return whether any."""
    parts = [
        evaluation.path
        for evaluation in theirs.evaluations()
        if not (mine.path / "evaluations" / evaluation.path.name / "metrics.json").exists()
    ]
    if not any(mine.checkpoints.glob("step-*")):
        parts += sorted(theirs.checkpoints.glob("step-*"))
    for part in parts:
        _move(part, mine.path / part.relative_to(theirs.path), stage)
    return bool(parts)


def _merge_sweep(sweep: SweepFolder, stage: Path) -> None:
    """Move a new sweep into the lab; of one that is there the files, its plan last.

    What people have said, and what was spent, stays; the plan so far is one of the earlier ones.
    """
    new = stage / "new" / "sweep"
    if not sweep.plan_path.exists():
        _move(new, sweep.path, stage)
        return
    with sweep.lock():
        sweep.keep_plan()
        names = [path.relative_to(new) for path in new.rglob("*") if path.is_file()]
        names = [n for n in names if n.parts[0] != "plans" or not (sweep.path / n).exists()]
        for name in (name for name in names if name.suffix == ".jsonl"):
            _join_lines(sweep.path / name, new / name)
        for name in sorted(names, key=lambda name: name.name == "plan.json"):
            _move(new / name, sweep.path / name, stage)


def _move(source: Path, target: Path, stage: Path) -> None:
    """Rename a file or folder into the lab; what was there goes into the stage."""
    with writing(target):
        target.parent.mkdir(parents=True, exist_ok=True)
        if target.is_dir():
            target.rename(stage / uuid.uuid4().hex)
        source.replace(target)
