"""The share of a run's training that its record holds already."""

from __future__ import annotations

from tread_lab.records.lab import Lab
from tread_lab.records.status import RunState
from tread_lab.sweep.trial.trial import Task


def done_share(lab: Lab, task: Task) -> float:
    """Return the share of a run's training steps that has been executed, from 0 to 1."""
    folder = lab.run(task.run)
    if folder.state() is RunState.COMPLETED:
        return 1.0
    return folder.step() / task.spec.train.steps
