"""Calibration in several processes: one that is killed costs accuracy, not the command."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Callable
from typing import Any

import pytest
import torch

from tread_lab.engine.cost import calibration
from tread_lab.engine.cost.calibration import (
    AFFORDABLE_FLOPS,
    FEATURE_SECONDS,
    Speed,
    affordable,
    calibrate,
)
from tread_lab.engine.cost.training import cost
from tread_lab.specs import RunSpec, decode
from tread_lab.specs.evaluation import SamplesSpec


def test_a_killed_process_of_the_calibration_is_survived(
    tiny: Callable[..., RunSpec], monkeypatch: pytest.MonkeyPatch
) -> None:
    speed = Speed(1.0, 2.0, 3.0, 4.0)

    class Killed(subprocess.Popen[str]):
        def __init__(self, *arguments: Any, **options: Any) -> None:
            super().__init__(*arguments, **options)
            os.kill(self.pid, signal.SIGKILL)
            self.wait()

    monkeypatch.setattr(calibration.subprocess, "Popen", Killed)
    monkeypatch.setattr(calibration, "measure", lambda spec, device: speed)
    assert calibrate([tiny()] * 100, torch.device("cpu"), slots=2) == [speed] * 100


def test_features_take_time_only_where_images_are_measured(tiny: Callable[..., RunSpec]) -> None:
    speed = Speed(overhead=0, per_flop=0, call=0, per_call_flop=0)
    measured, shown = (
        decode(SamplesSpec, {"metrics": metrics, "count": 1000}) for metrics in (["fd"], [])
    )
    assert speed.evaluate_seconds(tiny(), [measured]) == 1000 * FEATURE_SECONDS
    assert speed.evaluate_seconds(tiny(), [shown]) == 0


def test_a_run_is_timed_if_its_dense_step_is_cheap(tiny: Callable[..., RunSpec]) -> None:
    dense = cost(tiny(steps=10)).train_flops / 10 / 8  # of one image
    assert affordable(tiny()) and affordable(tiny(routes=["0->3"]))
    batch = int(1.1 * AFFORDABLE_FLOPS / dense)
    sparse = tiny(routes=[{"start": 0, "end": 3, "rate": 0.9}], train={"batch": batch})
    assert cost(sparse).train_flops / sparse.train.steps < AFFORDABLE_FLOPS
    assert not affordable(sparse)
