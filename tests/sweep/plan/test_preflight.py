"""Runs that share a device are refused before launch where its memory does not suffice."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from tread_lab.cli import main
from tread_lab.engine.cost.training import cost
from tread_lab.engine.device import memory
from tread_lab.specs import RunSpec, UserError
from tread_lab.sweep.plan.devices import DeviceFacts, Devices
from tread_lab.sweep.plan.preflight import check_room
from tread_lab.sweep.trial.task import Task

CPU = torch.device("cpu")
SWEEP = """
experiment: tiny
fixed: {train: {batch: %d}}
axes: {route: {start: 0, end: 2}}
"""


@pytest.mark.fault(
    22,
    done="four runs at once on this machine, each estimated at half of its memory",
    survived="refused in one line with exit code 2 and how many would fit; nothing is written",
)
def test_runs_that_do_not_fit_one_device_together_are_refused(
    in_folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("os.cpu_count", lambda: 4)
    big = int(memory(CPU) / 2 / _image_bytes())
    (in_folder / "big.yaml").write_text(SWEEP % big)
    before = sorted(in_folder.rglob("*"))
    assert main(["sweep", "big.yaml", "--device", "cpu", "--no-mlflow"]) == 2
    line = capsys.readouterr().err.strip().splitlines()[-1]
    assert "4 runs at once on one cpu device need about" in line and "--concurrent" in line
    assert sorted(in_folder.rglob("*")) == before


def _image_bytes() -> float:
    """What one image of the tiny experiment keeps for the backward pass."""
    from tread_lab.config.load import load_experiment
    from tread_lab.specs.fields import run_of

    return cost(run_of(load_experiment("tiny", []).run)).activation_bytes


def test_a_gpu_given_in_parts(tiny: Callable[..., RunSpec]) -> None:
    task = Task(tiny())
    need = cost(task.spec).memory_bytes
    large, small = (DeviceFacts("cuda", "x", ("fp32",), size * need) for size in (9, 2))
    for packed in (1, 2):
        check_room([task], Devices((large, small), packed=packed))
    with pytest.raises(UserError, match=r"3 runs at once .* room for 2 runs"):
        check_room([task], Devices((large, small), packed=3))
