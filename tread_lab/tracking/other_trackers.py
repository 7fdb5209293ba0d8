"""Trackers that accelerate knows (TensorBoard, W&B, Aim, ...), fed live from the records."""

from __future__ import annotations

import logging
from collections import Counter
from typing import Any

from accelerate import tracking

from tread_lab.config.errors import UserError, lookup
from tread_lab.records.lab import Lab
from tread_lab.tracking.shown_run import ShownRun, ShownSweep

# accelerate's own logger refuses to work outside of an `Accelerator`.
tracking.logger = logging.getLogger(tracking.__name__)

PACKAGES = {"comet_ml": "comet-ml"}  # where it is not named as the tracker


def check_tracker(name: str) -> None:
    """Refuse a tracker that accelerate does not know, or whose package is not installed."""
    lookup(tracking.LOGGER_TYPE_TO_CLASS, name, "--tracker")
    if name not in map(str, tracking.get_available_trackers()):
        package = PACKAGES.get(name, name)
        raise UserError(
            f"--tracker {name}: {package} is not installed. Try `pip install {package}`."
        )


class OtherTracker:
    """Shows each trial of a sweep as a run of a tracker while a driver is at work.

    Trials that had ended before are left out. A trial that is resumed goes on in its run where the
    tracker can, by its ID.
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
        kind, sweep = tracking.LOGGER_TYPE_TO_CLASS[self._name], one.sweep.plan.name
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
