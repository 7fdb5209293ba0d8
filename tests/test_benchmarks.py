"""The script that measures a GPU keeps to the time of its calls, whatever a phase does."""

from __future__ import annotations

import importlib
import os
import select
import sys
from pathlib import Path
from types import ModuleType

import pytest

FOLDER = Path(__file__).parents[1] / "benchmarks"


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(FOLDER))
    return importlib.import_module("gpu")


def test_every_call_ends_within_nine_minutes_and_the_whole_task_comes_first(
    gpu: ModuleType,
) -> None:
    limits = {n: sum(gpu.PHASES[name].seconds for name in names) for n, names in gpu.CALLS.items()}
    assert limits == {1: 540, 2: 390, 3: 520}
    assert gpu.CALLS[1][0] == "whole"


def test_a_phase_whose_time_is_up_leaves_no_process(gpu: ModuleType) -> None:
    child = "import subprocess; subprocess.run(['sleep', '99'])"
    ends, held = os.pipe()
    with os.fdopen(held, "w") as log:
        assert gpu._run([sys.executable, "-c", child], log, 2.0) == "out of time"
    with os.fdopen(ends) as pipe:
        ready, *_ = select.select([pipe], [], [], 30)
        assert ready and pipe.read() == ""  # its end: no process holds the other one
