"""What is still open will take how long: from a short calibration on the device, lane by lane."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tread_lab.engine.calibrate import Speed, affordable, calibrate
from tread_lab.engine.device import pick
from tread_lab.records.layout import Lab
from tread_lab.sweep.executed import done_share
from tread_lab.sweep.lanes import makespan
from tread_lab.sweep.trial import Task

TRIAL_SECONDS = 0.5  # starting a trial in a reused worker, writing its record
START_SECONDS = {"ray": 10.0, "inline": 0.5}  # workers and their imports


@dataclass(frozen=True)
class Estimate:
    """Predicted wall seconds of the open runs, or nothing where measuring would cost too much."""

    seconds: float | None
    open_runs: int


@dataclass(frozen=True)
class Forecast:
    """Predicts seconds; without a speed (measuring would cost too much) it knows nothing."""

    lab: Lab
    speed: Speed | None
    lanes: int
    start: float

    def seconds(self, task: Task) -> float | None:
        """What is left of one run on its lane."""
        if self.speed is None:
            return None
        left = 1 - done_share(self.lab, task)
        folder = self.lab.run_of(task.spec)
        open_parts = [spec for spec in task.evaluations if not folder.evaluation(spec).done]
        training = left * self.speed.train_seconds(task.spec)
        return training + self.speed.evaluate_seconds(task.spec, open_parts) + TRIAL_SECONDS

    def total(self, todo: Sequence[Task]) -> Estimate:
        """Wall time of all, the last one included."""
        seconds = [self.seconds(task) for task in todo]
        known = [second for second in seconds if second is not None]
        if len(known) < len(seconds):
            return Estimate(None, len(todo))
        return Estimate(makespan(known, self.lanes) + self.start if todo else 0.0, len(todo))


def forecast(
    lab: Lab, todo: Sequence[Task], *, lanes: int, device: str | None, executor: str
) -> Forecast:
    """Calibrate on the first of `todo`, if a step of it is cheap."""
    speed = None
    if todo and affordable(todo[0].spec):
        import torch

        torch.set_num_threads(1)
        speed = calibrate(todo[0].spec, pick(device), lanes=min(lanes, len(todo)))
    return Forecast(lab, speed, lanes, START_SECONDS[executor])
