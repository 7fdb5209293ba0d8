"""Finds the files of a lab that nothing needs any more, with their sizes, and removes them."""

from __future__ import annotations

import json
import struct
import time
from collections.abc import Collection, Iterable, Iterator
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path

from tread_lab.engine.checkpoint import is_whole, list_checkpoints, slim, step_of
from tread_lab.engine.sample_images import FOLDER as IMAGES
from tread_lab.records.durable import modified
from tread_lab.records.lab import Lab
from tread_lab.records.locks import Busy, is_held
from tread_lab.records.run_folder import LOCK, RunFolder
from tread_lab.records.status import RunState
from tread_lab.specs.errors import UserError
from tread_lab.specs.run import RunSpec
from tread_lab.specs.signature import signature
from tread_lab.sweep.plan.storage import load_plan
from tread_lab.sweep.removal import delete
from tread_lab.sweep.trial.task import Task

# A failed run may be tried again.
ENDED = (RunState.COMPLETED, RunState.STOPPED, RunState.DIVERGED)
OPTIMIZER = "optimizer/"  # of a checkpoint, what only further training needs
SAMPLES, UNFINISHED = "samples", "unfinished files"
EARLIER, OPTIMIZER_STATE = "earlier checkpoints", "optimizer state"
_ORPHAN_SECONDS = 3600.0  # age from which an unfinished file outside of runs is an orphan


@dataclass(frozen=True)
class Removable:
    """A file or folder that can be removed.

    Attributes:
        what: `earlier checkpoints`, `optimizer state`, `samples`, `unfinished files` or `scratch`.
        bytes: how much room its removal makes.
        run: the run that it belongs to; "" for none.
    """

    what: str
    path: Path
    bytes: int
    run: str = ""


def find(
    lab: Lab, *, samples: bool = False, problems: list[UserError] | None = None
) -> list[Removable]:
    """Return every removable file of a lab; change nothing.

    A run that has ended and has every planned evaluation keeps its last weights and those of
    `execution.keep_steps`; nothing needs more. Any other run keeps all that it could resume from.
    A checkpoint that is the file of another run's `init_from` stays as it is.
    What lies behind a link is not the lab's.

    Args:
        samples: whether to include the images of finished evaluations, which only ADM's evaluator
            and sheets of samples read; their metrics stay.
        problems: where a line is added for each sweep whose plan cannot be read. Any run may be
            one of its runs, so that checkpoints stay.
    """
    problems = [] if problems is None else problems
    plans = lab.of_sweeps(load_plan, problems)
    planned = _planned(task for plan in plans.values() for task in plan.tasks)
    starts = {_start(task.spec) for plan in plans.values() for task in plan.tasks}
    removable: list[Removable] = []
    for folder in lab.runs():
        if (spec := folder.readable_spec()) is not None:
            starts.add(_start(spec))
        if not folder.locked:
            removable += _of_run(folder, spec, planned.get(folder.name, set()))
            removable += _samples(folder) if samples else []
    if problems:
        removable = [r for r in removable if r.what not in (EARLIER, OPTIMIZER_STATE)]
    root = lab.root.resolve()
    found = [*removable, *_orphans(lab)]
    places = ((item, _place(item.path)) for item in found)
    return [item for item, place in places if place.is_relative_to(root) and place not in starts]


def _start(spec: RunSpec) -> Path | None:
    """Return the file that a run starts from, `None` for none."""
    start = spec.init_from
    return Path(start.file).resolve() if start is not None and start.file is not None else None


def _place(path: Path) -> Path:
    """Return where a path really lies, however it is reached; `/` for a link."""
    return Path("/") if path.is_symlink() else path.resolve()


def clear(
    lab: Lab, removable: Collection[Removable], problems: list[UserError] | None = None
) -> int:
    """Remove the files of runs that nobody works on; return how many bytes that made free.

    Checkpoints stay where the last one, which would be all that is left, is damaged.

    Args:
        problems: where a line is added for each file or folder that cannot be removed.

    Raises:
        UserError: one cannot be removed, and there are no `problems`; the others are removed.
    """
    freed, failed = 0, list[UserError]()
    whole: dict[str, bool] = {}
    for item in removable:
        try:
            with lab.run(item.run).lock() if item.run else nullcontext():
                # A run that has ended may have been reopened since.
                if not item.run or item.what == UNFINISHED or lab.run(item.run).state() in ENDED:
                    if item.what in (EARLIER, OPTIMIZER_STATE) and item.run not in whole:
                        whole[item.run] = is_whole(list_checkpoints(item.path.parent)[0])
                    freed += _remove(item) if whole.get(item.run, True) else 0
        except Busy:
            continue
        except UserError as error:  # as in a folder of somebody else
            failed.append(error)
    if failed and problems is None:
        raise failed[0]
    if problems is not None:
        problems += failed
    return freed


def _planned(tasks: Iterable[Task]) -> dict[str, set[str]]:
    """Return, by run, the signatures of the evaluations that any sweep plans for it."""
    evaluations: dict[str, set[str]] = {}
    for task in tasks:
        evaluations.setdefault(task.run, set()).update(map(signature, task.evaluations))
    return evaluations


def _of_run(
    folder: RunFolder, spec: RunSpec | None, planned: Collection[str]
) -> Iterator[Removable]:
    for path in _unfinished(folder.path):
        yield Removable(UNFINISHED, path, path.stat().st_size, folder.name)
    state = folder.state()
    if state not in ENDED or folder.result() is None or folder.damaged():
        return  # one that somebody has stopped may go on
    done = {evaluation.path.name for evaluation in folder.evaluations() if evaluation.done}
    if state is not RunState.DIVERGED and not set(planned) <= done:
        return
    asked = folder.asked_steps()
    for age, path in enumerate(list_checkpoints(folder.checkpoints)):
        if age > 0 and spec is not None and step_of(path) not in asked:
            yield Removable(EARLIER, path, path.stat().st_size, folder.name)
        elif size := _optimizer_bytes(path):
            yield Removable(OPTIMIZER_STATE, path, size, folder.name)


def _samples(folder: RunFolder) -> Iterator[Removable]:
    """Yield the images of finished evaluations; their record notes that they were removed."""
    if folder.state() in ENDED:
        for evaluation in folder.evaluations():
            path = evaluation.path / "samples.npz"
            if path.exists() and evaluation.done:
                yield Removable(SAMPLES, path, path.stat().st_size, folder.name)


def _unfinished(folder: Path) -> Iterator[Path]:
    """Yield what a killed process was writing, and the empty dumps of watchdogs."""
    for path in folder.rglob(".*.*"):
        if path.is_file():
            yield path
    yield from folder.glob("checkpoints/staging.safetensors")
    for path in folder.glob(f"evaluations/*/{IMAGES}/*"):
        if (path.parents[1] / "metrics.json").exists():  # else its evaluation goes on from them
            yield path
    yield from (path for path in folder.glob("stacks/*.txt") if not path.stat().st_size)


def _optimizer_bytes(path: Path) -> int:
    """Return the bytes of a checkpoint's optimizer state and of its part of the file's header."""
    try:
        with path.open("rb") as file:
            (length,) = struct.unpack("<Q", file.read(8))
            head = json.loads(file.read(length))
    except (OSError, ValueError, struct.error):
        return 0
    parts = {name: entry for name, entry in head.items() if name.startswith(OPTIMIZER)}
    spans = (entry["data_offsets"] for entry in parts.values())
    size = sum(stop - start for start, stop in spans)
    return size + len(json.dumps(parts, separators=(",", ":"))) if parts else 0


def _orphans(lab: Lab) -> Iterator[Removable]:
    """Yield what killed drivers have left in the lab."""
    driven = any(is_held(path) for path in lab.root.glob(f"sweeps/*/{LOCK}"))
    for path in () if driven else lab.root.glob("ray/*"):
        yield Removable("scratch", path, _size(path))
    for path in (*lab.root.glob("sweeps/*/.*.*"), *lab.root.glob("cache/.*.*")):
        written = modified(path)  # a driver may be just about to rename it
        if written is not None and time.time() - written > _ORPHAN_SECONDS:
            yield Removable(UNFINISHED, path, _size(path))


def _size(path: Path) -> int:
    if path.is_file():
        return path.stat().st_size
    return sum(part.lstat().st_size for part in path.rglob("*") if not part.is_dir())


def _remove(item: Removable) -> int:
    """Remove one file or folder, and return how many bytes that made free."""
    if item.what == OPTIMIZER_STATE:
        return slim(item.path, OPTIMIZER)
    delete(item.path)
    return item.bytes
