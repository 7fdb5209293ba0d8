"""Scripts keep what they promise: the times of calls on a GPU, the same extractor again."""

from __future__ import annotations

import importlib
import os
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest
import torch

from tread_lab.data.embedded import Fashion16

FOLDER = Path(__file__).parents[1] / "benchmarks"


@pytest.fixture(autouse=True)
def on_the_path(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(FOLDER))


@pytest.fixture
def gpu() -> ModuleType:
    return importlib.import_module("gpu")


def test_two_calls_measure_a_gpu_within_their_limits(gpu: ModuleType) -> None:
    limits = [sum(gpu.PHASES[name][0] for name in names) for names in gpu.CALLS.values()]
    assert limits[0] <= 525 and limits[1] <= 120
    assert sorted(gpu.CALLS[1] + gpu.CALLS[2]) == sorted(gpu.PHASES)


def test_gpu_script_starts_from_any_folder(tmp_path: Path) -> None:
    bare = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    command = [sys.executable, str(FOLDER / "gpu.py"), "--help"]
    assert subprocess.run(command, check=False, cwd=tmp_path, env=bare).returncode == 0


@pytest.mark.long
@pytest.mark.slow
@pytest.mark.parametrize("call", [1, 2])
def test_gpu_script_runs_on_a_cpu(call: int, tmp_path: Path) -> None:
    command = [sys.executable, str(FOLDER / "gpu.py"), "--out", str(tmp_path), "--device", "cpu"]
    done = subprocess.run([*command, "--small", "--call", str(call)], check=False)
    assert done.returncode == 0 and "error" not in (tmp_path / "results.jsonl").read_text()


class Few(Fashion16):
    """The first 32 embedded images."""

    def __len__(self) -> int:
        return 32


def test_equal_seeds_give_an_equal_extractor_and_leave_the_global_generator_alone() -> None:
    script = importlib.import_module("train_extractor")
    samples = Few("heldout")
    before = torch.get_rng_state()
    weights = [
        script.train(samples, epochs=2, batch=16, seed=seed).state_dict().values()
        for seed in (0, 0, 1)
    ]
    same = [all(map(torch.equal, weights[0], other)) for other in weights]
    assert same == [True, True, False] and torch.equal(torch.get_rng_state(), before)


@pytest.mark.parametrize("seeds", [2, 3])
def test_early_stopping_leaves_complete_cells(seeds: int) -> None:
    """Of cells that all equal dense few seem better, since every started cell counts."""
    halving, grid = (importlib.import_module(name) for name in ("early_stopping", "error_rates"))
    _, gaps_SK, published = grid.recorded()
    found = halving.measured((0.6,), seeds, 200, gaps_SK[:, published])
    assert found["complete"] == 1.0 and found["saved"] > 0.38
    assert found["headline"] <= 0.05 and found["best kept"] > 0.45
