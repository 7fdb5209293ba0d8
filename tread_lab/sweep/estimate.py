"""What is still open will take how long: from a short calibration on the device, lane by lane."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from tread_lab.engine.calibrate import FLOPS, Speed, affordable, calibrate
from tread_lab.records.layout import Lab
from tread_lab.spec.run import RunSpec
from tread_lab.sweep.devices import Devices
from tread_lab.sweep.executed import done_share
from tread_lab.sweep.lanes import makespan
from tread_lab.sweep.trial import Task

TRIAL_SECONDS = 0.5  # starting a trial in a reused worker, writing its record
_MOST_KINDS = 6  # kinds of runs that are calibrated; the others are taken to be like the first
Kind = tuple[object, ...]


@dataclass(frozen=True)
class Estimate:
    """Predicted wall seconds of the open runs, or nothing where measuring would cost too much."""

    seconds: float | None
    open_runs: int


@dataclass(frozen=True)
class Forecast:
    """Predicts how long things take.

    Attributes:
        speeds: by kind of run, as measured; none where measuring would cost too much. Then work is
            told in FLOPs, which says how far things are but not how long they take.
    """

    lab: Lab
    speeds: Mapping[Kind, Speed] = field(default_factory=dict)
    lanes: int = 1
    start: float = 0.0

    def training(self, spec: RunSpec) -> float:
        """Seconds of all training steps, or their FLOPs."""
        return self._speed(spec).train_seconds(spec)

    def work(self, task: Task) -> float:
        """Seconds of a whole run and its evaluations, or their FLOPs."""
        return self.training(task.spec) + self.measuring(task)

    def measuring(self, task: Task, *, still: bool = False) -> float:
        """Seconds of the evaluations, or their FLOPs; `still`: of those that are not done."""
        folder = self.lab.run_of(task.spec)
        specs = [e for e in task.evaluations if not still or not folder.evaluation(e).done]
        return self._speed(task.spec).evaluate_seconds(task.spec, specs)

    def seconds(self, task: Task) -> float | None:
        """What is left of one run on its lane; nothing where no speed is known."""
        if not self.speeds:
            return None
        left = 1 - done_share(self.lab, task)
        measuring = self.measuring(task, still=True)
        return left * self.training(task.spec) + measuring + TRIAL_SECONDS

    def total(self, todo: Sequence[Task]) -> Estimate:
        """Wall time of all, the last one included."""
        seconds = [self.seconds(task) for task in todo]
        known = [second for second in seconds if second is not None]
        if len(known) < len(seconds):
            return Estimate(None, len(todo))
        return Estimate(makespan(known, self.lanes) + self.start if todo else 0.0, len(todo))

    def _speed(self, spec: RunSpec) -> Speed:
        if not self.speeds:
            return FLOPS
        return self.speeds.get(kind_of(spec)) or next(iter(self.speeds.values()))


def kind_of(spec: RunSpec) -> Kind:
    """What decides how long a FLOP takes."""
    return spec.model, spec.precision, spec.train.batch


def forecast(lab: Lab, todo: Sequence[Task], devices: Devices, *, start: float) -> Forecast:
    """Calibrate on the first run of each kind, if a step of every one is cheap.

    Nothing is measured for devices of other machines, of which this one's would not tell.

    Args:
        start: seconds until the first run starts.
    """
    kinds: dict[Kind, RunSpec] = {}
    for task in todo:
        kinds.setdefault(kind_of(task.spec), task.spec)
    specs = dict(list(kinds.items())[:_MOST_KINDS])
    speeds: list[Speed] = []
    if devices.local is not None and all(affordable(spec) for spec in kinds.values()):
        import torch

        torch.set_num_threads(1)
        speeds = calibrate(list(specs.values()), devices.local, lanes=min(devices.slots, len(todo)))
    return Forecast(lab, dict(zip(specs, speeds)), devices.slots, start)
