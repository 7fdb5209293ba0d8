"""What a plan will take: time from a short calibration on the device, for what is still open."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tread_lab.engine.calibrate import affordable, calibrate
from tread_lab.engine.device import pick
from tread_lab.sweep.trial import Task

TRIAL_SECONDS = 0.5  # starting a trial in a reused worker, writing its record
START_SECONDS = 10.0  # Ray's workers and their imports


@dataclass(frozen=True)
class Estimate:
    """Predicted wall seconds of the open runs, or nothing where measuring would cost too much."""

    seconds: float | None
    open_runs: int


def estimate(todo: Sequence[Task], *, lanes: int, device: str | None) -> Estimate:
    """Predict the wall time of `todo` on `lanes` runs at once."""
    if not todo:
        return Estimate(0.0, 0)
    if not affordable(todo[0].spec):
        return Estimate(None, len(todo))
    import torch

    torch.set_num_threads(1)
    speed = calibrate(todo[0].spec, pick(device))
    work = [
        speed.train_seconds(task.spec)
        + speed.evaluate_seconds(task.spec, task.evaluations)
        + TRIAL_SECONDS
        for task in todo
    ]
    longest = max(work)
    return Estimate(START_SECONDS + max(sum(work) / lanes, longest), len(todo))
