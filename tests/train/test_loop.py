"""Claims about training: resumed equals uninterrupted, bitwise; draws are functions of the step."""

from __future__ import annotations

import itertools
import math
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor

from tests.sweep.plans import tiny
from tests.train.runs import CPU, differing, last_checkpoint
from tread_lab.config import RunSpec, UserError
from tread_lab.data.source import open_data, redrawn
from tread_lab.records import metric_names
from tread_lab.records.run_folder import RunFolder, list_checkpoints, step_of
from tread_lab.train import batches, trainer
from tread_lab.train.batches import Batch, Batches
from tread_lab.train.trainer import Diverged, Trainer, train


def run_to_end(spec: RunSpec, folder: RunFolder, *, stops: tuple[int, ...] = ()) -> None:
    """Train with a stop after each of `stops` more steps."""
    for steps in (*stops, None):
        iterator = train(spec, folder, CPU)
        for _ in itertools.islice(iterator, steps):
            pass
        iterator.close()


def logged(folder: RunFolder, key: str = metric_names.TRAIN_LOSS) -> list[tuple[int, float]]:
    return [(e.step, e.value) for e in folder.entries() if e.key == key]


@pytest.fixture
def a_second_a_step(monkeypatch: pytest.MonkeyPatch) -> None:
    """A clock by which a step takes a second, and nothing else any time."""
    seconds, step = itertools.count(1), Trainer.train_step

    def train_step(self: Trainer, *batch: Any, **rate: Any) -> None:
        step(self, *batch, **rate)
        now = float(next(seconds))
        monkeypatch.setattr(trainer, "time", SimpleNamespace(perf_counter=lambda: now))

    monkeypatch.setattr(trainer, "time", SimpleNamespace(perf_counter=lambda: 0.0))
    monkeypatch.setattr(Trainer, "train_step", train_step)


def assert_equal(one: RunFolder, other: RunFolder) -> None:
    """Weights, optimizer and average to the bit, and all that is logged."""
    assert differing(one, other) == []
    logs = [[(e.step, e.key, e.value) for e in folder.entries()] for folder in (one, other)]
    assert logs[0] == logs[1]


ROUTED = {"routes": ["1->2"]}
MDT = {
    "model": "MDT-4x16x2/4",
    "routes": [{"start": 0, "end": "B-3", "rate": 0.3}],
    "bypass": "mdt",
    "loss": "both",
}
SD_DIT = {
    "routes": [{"start": 0, "end": "B-1", "rate": 0.25}],
    "bypass": {"kind": "mask", "depth": 1, "width": 8, "heads": 2, "fill": "entry"},
    "loss": {"kind": "discrimination", "prototypes": 8, "hidden": 12, "bottleneck": 4},
}
MUON = {**ROUTED, "train": {"optimizer": "muon"}}
FP16 = {**ROUTED, "precision": "fp16", "train": {"clip": 1.0}}


@pytest.mark.parametrize(
    ("changes", "stops", "parts"),
    [
        (ROUTED, (10,), set()),
        (ROUTED, (3, 4, 6), set()),
        ({**ROUTED, "precision": "bf16"}, (7,), set()),
        (FP16, (1, 2), {"scaler"}),
        (MUON, (7,), set()),
        (MDT, (7,), set()),
        (SD_DIT, (7,), {"head", "teacher"}),
    ],
)
def test_resumed_equals_uninterrupted_bitwise(
    changes: dict[str, Any],
    stops: tuple[int, ...],
    parts: set[str],
    tmp_path: Path,
    a_second_a_step: None,
) -> None:
    """The speed, too, of which each step counts once, and the time of all attempts."""
    spec = tiny(steps=14, **changes)
    whole, stopped = RunFolder(tmp_path / "whole"), RunFolder(tmp_path / "stopped")
    run_to_end(spec, whole)
    run_to_end(spec, stopped, stops=stops)
    assert_equal(whole, stopped)
    last = [last_checkpoint(folder) for folder in (whole, stopped)]
    assert [float(found.facts["seconds"]) for found in last] == [14.0, 14.0]
    assert {key.split("/")[0] for key in last[0].tensors} == {"model", "ema", "optimizer", *parts}
    assert [step for step, _ in logged(whole)] == [5, 10, 14]
    speeds = dict(logged(stopped, metric_names.TRAIN_IMAGES_PER_S))
    assert set(speeds.values()) == {spec.train.batch}


@pytest.mark.parametrize("damaged", [False, True])
def test_crash_or_damage_repeats_the_numbers(
    damaged: bool, tmp_path: Path, a_second_a_step: None
) -> None:
    spec = tiny(steps=18)
    whole, hurt = RunFolder(tmp_path / "whole"), RunFolder(tmp_path / "hurt")
    run_to_end(spec, whole)
    iterator = train(spec, hurt, CPU)
    for _ in itertools.islice(iterator, 16):
        pass
    if damaged:
        iterator.close()
        newest = list_checkpoints(hurt.checkpoints)[0]
        newest.write_bytes(newest.read_bytes()[:-100])
    else:  # no checkpoint is written
        with pytest.raises(RuntimeError, match="crash"):
            iterator.throw(RuntimeError("crash"))
    kept = [step_of(path) for path in list_checkpoints(hurt.checkpoints)]
    assert kept == ([16, 10] if damaged else [10])
    with pytest.warns(UserWarning, match="using the previous") if damaged else nullcontext():
        run_to_end(spec, hurt)
    assert_equal(whole, hurt)


@pytest.mark.parametrize("every", [{"log_every": 100}, {"log_every": 5}])
def test_first_bad_step_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, every: dict[str, int]
) -> None:
    def noisy(self: Batches, step: int) -> Batch:
        batch = at(self, step)
        return replace(batch, noise_BCHW=batch.noise_BCHW * math.nan) if step == 3 else batch

    at = Batches.at
    monkeypatch.setattr(Batches, "at", noisy)
    folder = RunFolder(tmp_path / "run")
    spec = tiny(steps=9, execution={"checkpoint_every": 3, "keep_checkpoints": 1, **every})
    with pytest.raises(Diverged, match="training loss nan at step 4"):
        run_to_end(spec, folder)
    assert [p.name[:13] for p in list_checkpoints(folder.checkpoints)] == ["step-00000003"]
    iterator = train(spec, folder, CPU)  # stopped after the bad step, before any check
    assert [progress.step for progress in itertools.islice(iterator, 1)] == [4]
    iterator.close()
    assert [p.name[:13] for p in list_checkpoints(folder.checkpoints)] == ["step-00000003"]


def test_nonfinite_sample_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(samples: Any, ids: Tensor, *key: Any) -> tuple[Tensor, Tensor]:
        x_BCHW, y_B = redrawn(samples, ids, *key)
        return torch.where((ids == wrong)[:, None, None, None], math.inf, x_BCHW), y_B

    spec = tiny(steps=6)
    wrong = int(Batches(spec, open_data(spec.data, "train"))._ids(4)[2])
    monkeypatch.setattr(batches, "redrawn", broken)
    with pytest.raises(UserError, match=f"^data: training sample {wrong} must be finite"):
        run_to_end(spec, RunFolder(tmp_path / "run"))
