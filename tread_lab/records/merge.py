"""Merging of records into a lab: of a run in both the further one stays, and no weights go."""

from __future__ import annotations

import uuid
from collections import Counter
from pathlib import Path

from tread_lab.records.checksums import Tree
from tread_lab.records.durable import write_text, writing
from tread_lab.records.lab import Lab
from tread_lab.records.locks import Busy
from tread_lab.records.log import without_checksum
from tread_lab.records.remarks import REMARKS, is_remark
from tread_lab.records.run_folder import RunFolder
from tread_lab.records.status import RunState
from tread_lab.records.sweep_folder import SweepFolder
from tread_lab.specs.evaluation import in_words

# What became of a run.
NEW, KEPT, ADDED, TAKEN, BUSY = "new", "kept", "added", "taken", "busy"
HAS_WEIGHTS = "has weights"
_SAID = ("note", "tag", "untag")  # of a run, whatever has been trained of it


def merge_runs(lab: Lab, stage: Path) -> tuple[Counter[str], tuple[str, ...]]:
    """Merge the runs of a stage, and the references that they name.

    Returns:
        how many runs became what, and a line for each that is further but does not replace the
        lab's.
    """
    became, lines = Counter[str](), list[str]()
    for theirs in Lab(stage / "new").runs():
        mine = lab.run(theirs.name)
        became[what := _merge_run(mine, theirs, stage)] += 1
        if what == HAS_WEIGHTS:
            lines.append(_why_kept(mine, theirs))
    for path in (stage / "new").glob("references/*.json"):
        if not (target := lab.root / "references" / path.name).exists():
            _move(path, target, stage)
    return became, tuple(lines)


def _merge_run(mine: RunFolder, theirs: RunFolder, stage: Path) -> str:
    """Move a run into the lab, unless the lab has got as far, or would lose weights; return what
    became of it.

    Of the same execution the lab gets what it lacks: evaluations, and weights if it has none. Notes
    and tags arrive unless a process works at the run, requests to stop with the run that they are
    about alone.
    """
    if not mine.path.exists():
        _move(theirs.path, mine.path, stage)
        return NEW
    try:
        with mine.lock():
            logs = [r.log_path.read_bytes() if r.log_path.exists() else b"" for r in (mine, theirs)]
            if mine.result() == theirs.result() and logs[0] == logs[1]:  # logs hold times
                parts, said = _add_parts(mine, theirs, stage), _add_said(mine, theirs)
                return ADDED if parts or said else KEPT
            if _progress(theirs) <= _progress(mine):
                return ADDED if _add_said(mine, theirs) else KEPT
            if _lost_weights(mine, theirs):
                _add_said(mine, theirs)
                return HAS_WEIGHTS
            _join_lines(mine.remarks.path, theirs.remarks.path)
            theirs.keep_steps(mine.kept_steps(), asked=mine.asked_steps())
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
    brought = theirs.weights()
    asked, furthest = mine.asked_steps(), max(brought, default=0)
    return sorted(s for s in mine.weights() - brought if s in asked or s > furthest)


def _why_kept(mine: RunFolder, theirs: RunFolder) -> str:
    """Return why the archive's run, which is further, does not replace the lab's."""
    return (
        f"run {mine.name} stays at step {mine.step()}: the archive has it at step {theirs.step()}"
        f" without the weights of step {in_words(_lost_weights(mine, theirs))}, which this lab has;"
        f" export it with weights, or delete {mine.checkpoints}, then import again"
    )


def _join_lines(mine: Path, theirs: Path) -> None:
    """Put the lines of a record of the lab before those that arrive under the same name; what
    people have said is in the order of saying, since the last word counts."""
    if own := _lines(mine):
        lines = [*own, *(line for line in _lines(theirs) if line not in own)]
        if mine.name == REMARKS:
            lines.sort(key=_said_at)
        write_text(theirs, "".join(f"{line}\n" for line in lines))


def _add_said(mine: RunFolder, theirs: RunFolder) -> bool:
    """Add the notes and tags that the lab lacks of a run; return whether any."""
    own, path = _lines(mine.remarks.path), mine.remarks.path
    said = [line for line in _lines(theirs.remarks.path) if line not in own]
    if new := [line for line in said if (_remark(line) or {}).get("event") in _SAID]:
        write_text(path, "".join(f"{line}\n" for line in sorted([*own, *new], key=_said_at)))
    return bool(new)


def _said_at(line: str) -> float:
    """Return when a remark was made; a damaged line, which nobody reads, is before all."""
    return float((_remark(line) or {}).get("time", 0.0))


def _remark(line: str) -> Tree | None:
    tree = without_checksum(line.encode())
    return tree if tree is not None and is_remark(tree) else None


def _lines(record: Path) -> list[str]:
    return record.read_text(encoding="utf-8").splitlines() if record.exists() else []


def _add_parts(mine: RunFolder, theirs: RunFolder, stage: Path) -> bool:
    """Add the evaluations and the weights that the lab lacks of a run; return whether any."""
    parts = [
        evaluation.path
        for evaluation in theirs.evaluations()
        if not (mine.path / "evaluations" / evaluation.path.name / "metrics.json").exists()
    ]
    if not mine.weights():
        parts += sorted(theirs.checkpoints.glob("step-*"))
    for part in parts:
        _move(part, mine.path / part.relative_to(theirs.path), stage)
    return bool(parts)


def merge_sweep(sweep: SweepFolder, stage: Path, *, takes_plan: bool) -> None:
    """Move a new sweep into the lab; of one that is there the files, its plan last.

    What people have said, and what was stopped and spent, stays; the plan so far is one of the
    earlier ones.

    Args:
        takes_plan: whether the plan goes further than the lab's; else that one stays.
    """
    new = stage / "new" / "sweep"
    if not sweep.plan_path.exists():
        _move(new, sweep.path, stage)
        return
    names = [path.relative_to(new) for path in new.rglob("*") if path.is_file()]
    if not takes_plan:
        told = {sweep.remarks.path.name, sweep.spent_path.name, sweep.stopped_path.name}
        names = [n for n in names if n.name in told]
        names = [n for n in names if {*_lines(new / n)} - {*_lines(sweep.path / n)}]
    if not names:
        return
    with sweep.lock():
        if takes_plan:
            sweep.keep_plan()
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
