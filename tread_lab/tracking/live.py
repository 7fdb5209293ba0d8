"""Live trackers: a sweep that runs is shown from a side thread, from its records alone."""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any

from tread_lab.config.errors import UserError, first_line, lookup
from tread_lab.records.lab import Lab

if TYPE_CHECKING:
    from tread_lab.tracking.shown_run import ShownRun

MLFLOW, NONE = "mlflow", "none"
EVERY = 5.0  # seconds between two syncs
LAST = 300.0  # seconds that the last one may take
PACKAGES = {"comet_ml": "comet-ml"}  # where it is not named as the tracker


def check_tracker(name: str) -> None:
    """Refuse unknown trackers and missing packages."""
    if name in (MLFLOW, NONE):
        return
    lookup(_accelerate().LOGGER_TYPE_TO_CLASS, name, "--tracker")
    if name not in map(str, _accelerate().get_available_trackers()):
        package = PACKAGES.get(name, name)
        raise UserError(
            f"--tracker {name}: {package} is not installed. Try `pip install {package}`."
        )


def tracked(
    lab: Lab, sweep: str, name: str, say: Callable[[str], object]
) -> AbstractContextManager[None]:
    """Return a context manager in which the tracker `name` follows a sweep's records."""
    if name == NONE:
        return nullcontext()
    if name != MLFLOW:
        return following(OtherTracker(lab, name, sweep).sync, sweep, say)
    from tread_lab.tracking.mlflow_tracker import MlflowTracker  # takes a second to import

    return following(MlflowTracker(lab, lab.mlflow_uri).sync, sweep, say)


@contextlib.contextmanager
def following(
    sync: Callable[[str], object], sweep: str, say: Callable[[str], object]
) -> Iterator[None]:
    """Sync a sweep every few seconds within a block and once at its end.

    Errors do not affect training; a later sync completes the store.

    Args:
        sync: sends the records of a sweep.
        say: called with the error of the last sync.
    """
    leaving, problems = threading.Event(), list[str]()

    def watch() -> None:
        pause, last = EVERY, False
        while not last:
            last = leaving.wait(pause)
            started = time.monotonic()
            problems.clear()
            try:
                sync(sweep)
            except Exception as error:
                problems.append(first_line(error))
            pause = max(EVERY, 4 * (time.monotonic() - started))  # a fifth of the thread's time

    thread = threading.Thread(target=watch, name="tracker", daemon=True)
    thread.start()
    try:
        yield
    finally:
        leaving.set()
        thread.join(LAST)
        for problem in problems:
            say(f"tracker of {sweep}: {problem}; the records are complete")


class OtherTracker:
    """A live tracker of accelerate (TensorBoard, W&B, Aim, ...).

    Each trial is a run of the tracker. Trials that ended earlier are omitted. Resumed trials
    continue their run by ID, if the tracker supports it.
    """

    def __init__(self, lab: Lab, name: str, sweep: str) -> None:
        self._lab, self._name = lab, name
        self._open: dict[str, Any] = {}
        self._sent = Counter[str]()  # values of the log
        self._ended = {one.key for one in self._shown(sweep) if one.state.ended}

    def sync(self, sweep: str) -> None:
        """Send what was logged and measured since the last call."""
        for one in self._shown(sweep):
            if not (one.state.ended and one.key in self._ended):
                self._send(one)

    def _shown(self, sweep: str) -> list[ShownRun]:
        from tread_lab.tracking.shown_run import ShownSweep  # imports pandas

        return ShownSweep(self._lab, self._lab.known_sweep(sweep).plan()).runs

    def _send(self, one: ShownRun) -> None:
        if one.key not in self._open:
            self._open[one.key] = self._started(one)
        tracker, values = self._open[one.key], list(one.curves())
        for key, value, _, step in values[self._sent[one.key] :]:
            tracker.log({key: value}, step=step)
        self._sent[one.key] = len(values)
        if one.state.ended:
            tracker.log(one.metrics, step=one.step)
            self._open.pop(one.key).finish()
            self._ended.add(one.key)

    def _started(self, one: ShownRun) -> Any:
        kind, sweep = _accelerate().LOGGER_TYPE_TO_CLASS[self._name], one.sweep.plan.name
        options: dict[str, Any] = {}
        if kind.requires_logging_directory:
            options["logging_dir"] = str(self._lab.root / self._name)
        name = f"{sweep}/{one.name}"
        if self._name == "wandb":  # its run name is that of the project
            own = {"name": one.name, "id": one.folder.name, "group": str(one.row["cell"])}
            name, options = sweep, {**own, "resume": "allow", "reinit": "create_new"}
        tracker = kind(name, **options)
        tracker.main_process_only = False  # no process group is begun here
        tracker.start()
        tracker.store_init_configuration(one.settings)
        return tracker


def _accelerate() -> Any:
    """Return accelerate's trackers; its own logger refuses to work outside of an `Accelerator`."""
    from accelerate import tracking

    tracking.logger = logging.getLogger(tracking.__name__)
    return tracking
