"""Records of completed runs whose steps took a stated time."""

from __future__ import annotations

from typing import Any

from tread_lab.records.lab import Lab
from tread_lab.records.metric_names import STEP_SECONDS
from tread_lab.records.run_folder import RunFolder
from tread_lab.records.status import RunState
from tread_lab.specs import RunSpec


def timed_run(
    lab: Lab, spec: RunSpec, seconds: float, model: str, threads: int = 1, **attempt: Any
) -> RunFolder:
    """Write what a completed run leaves behind: its device, its attempt and its step time."""
    folder = lab.run_of(spec)
    folder.create(spec)
    folder.open_attempt(origin={"device": model, "model": model, "threads": threads})
    folder.open_attempt(**attempt)
    folder.finish(RunState.COMPLETED, step=spec.train.steps, metrics={STEP_SECONDS: seconds})
    return folder
