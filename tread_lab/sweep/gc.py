"""What of a lab nothing needs any more: found, priced, removed only from runs that have ended."""

from __future__ import annotations

import json
import os
import shutil
import struct
import tempfile
import time
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from pathlib import Path

from tread_lab.engine.checkpoint import list_checkpoints, slim, step_of
from tread_lab.records.lab import Lab, RunFolder
from tread_lab.records.locks import Busy, is_held
from tread_lab.records.status import RunState
from tread_lab.specs.errors import UserError
from tread_lab.specs.signature import signature
from tread_lab.sweep.plan.plan import load_plan

# A failed run may be tried again.
ENDED = (RunState.COMPLETED, RunState.STOPPED, RunState.DIVERGED)
OPTIMIZER = "optimizer/"  # of a checkpoint, what only further training needs
SAMPLES = "samples"
SCRATCH = "tread-lab-"  # how the folders begin in which local clusters have their sockets
_OLD = 3600.0  # seconds after which an unfinished file outside of runs is an orphan


@dataclass(frozen=True)
class Litter:
    """Something that can go.

    Attributes:
        what: `earlier checkpoints`, `optimizer state`, `samples`, `unfinished files` or `scratch`.
        bytes: what would be free then.
        run: the run it belongs to.
    """

    what: str
    path: Path
    bytes: int
    run: str = ""


def find(lab: Lab, *, samples: bool = False) -> list[Litter]:
    """Return all of it; nothing is changed.

    A run that has ended and has every evaluation that any sweep plans for it keeps its last weights
    and those of `execution.keep_steps`: evaluations, runs that start from it and figures need no
    more. Runs that are under way, open or failed keep everything they could resume from.

    Args:
        samples: the images of finished evaluations too, which only ADM's own evaluator and sheets
            of samples read; metrics stay, and nothing is measured again.
    """
    planned = _planned(lab)
    found: list[Litter] = []
    for path in sorted((lab.root / "runs").glob("*")):
        folder = lab.run(path.name)
        if not is_held(path / ".claim"):
            found += _of_run(folder, planned.get(path.name, set()))
            found += _samples(folder) if samples else []
    return [*found, *_scratch(lab)]


def clear(lab: Lab, litter: Collection[Litter]) -> int:
    """Remove it and return how many bytes that made free; runs that are in use again are left."""
    freed = 0
    for item in litter:
        try:
            if not item.run:
                freed += _removed(item)
                continue
            folder = lab.run(item.run)
            with folder.claim():
                unfinished = item.what == "unfinished files"
                if unfinished or folder.state() in ENDED:
                    freed += _removed(item)
        except Busy:
            continue
    return freed


def _planned(lab: Lab) -> dict[str, set[str]]:
    """run -> evaluations that some sweep wants of it."""
    found: dict[str, set[str]] = {}
    for name in lab.sweeps():
        for task in load_plan(lab.sweep(name)).tasks:
            wanted = found.setdefault(task.run, set())
            wanted |= {signature(spec) for spec in task.evaluations}
    return found


def _of_run(folder: RunFolder, planned: Collection[str]) -> Iterator[Litter]:
    for path in _unfinished(folder.path):
        yield Litter("unfinished files", path, path.stat().st_size, folder.name)
    state = folder.state()
    if state not in ENDED or folder.damaged():
        return
    done = {evaluation.path.name for evaluation in folder.evaluations() if evaluation.done}
    if state is not RunState.DIVERGED and not set(planned) <= done:
        return
    steps = set(_kept_steps(folder))
    for place, path in enumerate(list_checkpoints(folder.checkpoints)):
        if place > 0 and step_of(path) not in steps:
            yield Litter("earlier checkpoints", path, path.stat().st_size, folder.name)
        elif size := _optimizer_bytes(path):
            yield Litter("optimizer state", path, size, folder.name)


def _samples(folder: RunFolder) -> Iterator[Litter]:
    """The images of finished evaluations of a run that has ended; their record calls them absent
    by choice, not damaged."""
    if folder.state() in ENDED:
        for evaluation in folder.evaluations():
            path = evaluation.path / "samples.npz"
            if path.exists() and evaluation.done:
                yield Litter(SAMPLES, path, path.stat().st_size, folder.name)


def _kept_steps(folder: RunFolder) -> tuple[int, ...]:
    try:
        return folder.spec().execution.keep_steps
    except UserError:  # then nothing is known to be unneeded
        return tuple(step_of(path) for path in list_checkpoints(folder.checkpoints))


def _unfinished(folder: Path) -> Iterator[Path]:
    """What a killed process was writing, and empty dumps of watchdogs that had no cause to bark."""
    for path in folder.rglob(".*.*"):
        if path.is_file() and path.name not in (".claim", ".pulse"):
            yield path
    yield from folder.glob("checkpoints/staging.safetensors")
    yield from (path for path in folder.glob("stacks/*.txt") if not path.stat().st_size)


def _optimizer_bytes(path: Path) -> int:
    """Bytes of a checkpoint that are the optimizer's, from the head of the file."""
    try:
        with path.open("rb") as file:
            (length,) = struct.unpack("<Q", file.read(8))
            head = json.loads(file.read(length))
    except (OSError, ValueError, struct.error):
        return 0
    spans = [entry["data_offsets"] for name, entry in head.items() if name.startswith(OPTIMIZER)]
    return sum(stop - start for start, stop in spans)


def _scratch(lab: Lab) -> Iterator[Litter]:
    """What killed drivers have left."""
    driven = any(is_held(path) for path in lab.root.glob("sweeps/*/.claim"))
    for path in () if driven else lab.root.glob("ray/*"):
        yield Litter("scratch", path, _size(path))
    for path in (*lab.root.glob("sweeps/*/.*.*"), *lab.root.glob("cache/.*.*")):
        if time.time() - path.stat().st_mtime > _OLD:
            yield Litter("unfinished files", path, _size(path))
    for path in Path(tempfile.gettempdir()).glob(f"{SCRATCH}*"):
        if path.stat().st_uid == os.getuid() and not _in_use(path):
            yield Litter("scratch", path, _size(path))


def _in_use(scratch: Path) -> bool:
    """Whether the process lives that Ray's session is named for; a young folder counts as used."""
    sessions = [path.name for path in scratch.glob("session_2*")]
    pids = [name.rpartition("_")[2] for name in sessions]
    young = time.time() - scratch.stat().st_mtime < _OLD
    return any(Path("/proc", pid).exists() for pid in pids) or (not pids and young)


def _size(path: Path) -> int:
    if path.is_file():
        return path.stat().st_size
    return sum(part.lstat().st_size for part in path.rglob("*") if not part.is_dir())


def _removed(item: Litter) -> int:
    """Remove one thing; bytes that are free now."""
    if item.what == "optimizer state":
        return slim(item.path, OPTIMIZER)
    if item.path.is_dir():
        shutil.rmtree(item.path, ignore_errors=True)
    else:
        item.path.unlink(missing_ok=True)
    return item.bytes
