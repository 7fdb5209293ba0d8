"""Claims about training: resumed equals uninterrupted, bitwise; draws are functions of the step."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from tests.engine.runs import small_run, train_until
from tread_lab.data.source import open_data
from tread_lab.engine import checkpoint, trainer
from tread_lab.engine.batches import Batches
from tread_lab.engine.optimizer import learning_rates
from tread_lab.engine.train import Diverged, train
from tread_lab.engine.trainer import Trainer
from tread_lab.records import metric_names
from tread_lab.records.lab import Lab
from tread_lab.records.run_folder import RunFolder
from tread_lab.specs import RunSpec

CPU = torch.device("cpu")
Tiny = Callable[..., RunSpec]


def run_to_end(spec: RunSpec, folder: RunFolder, *, stops: tuple[int, ...] = ()) -> None:
    """Train with a stop after each of `stops` more steps."""
    for steps in (*stops, None):
        iterator = train(spec, folder, CPU)
        for _ in itertools.islice(iterator, steps):
            pass
        iterator.close()


def state(folder: RunFolder) -> dict[str, torch.Tensor]:
    found = checkpoint.load_latest(folder.checkpoints)
    assert found is not None
    return dict(found.tensors)


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


@pytest.mark.parametrize("stops", [(1,), (7,), (10,), (3, 4, 6)])
def test_stopped_anywhere_and_resumed_equals_uninterrupted_bitwise(
    tmp_path: Path, tiny: Tiny, stops: tuple[int, ...], a_second_a_step: None
) -> None:
    """Weights and losses to the bit, and the speed, of which each step counts once."""
    spec = tiny(steps=24, routes=["1->2"])
    whole, parts = RunFolder(tmp_path / "whole"), RunFolder(tmp_path / "parts")
    run_to_end(spec, whole)
    run_to_end(spec, parts, stops=stops)
    a, b = state(whole), state(parts)
    assert a.keys() == b.keys()
    assert {key.split("/")[0] for key in a} == {"model", "ema", "optimizer"}
    assert [key for key in a if not torch.equal(a[key], b[key])] == []
    assert logged(whole) == logged(parts) and len(logged(whole)) == 5
    speeds = dict(logged(parts, metric_names.TRAIN_IMAGES_PER_S))
    assert set(speeds.values()) == {spec.train.batch} and len(speeds) == 5


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


@pytest.mark.parametrize(("system", "parts"), [(MDT, set()), (SD_DIT, {"head", "teacher"})])
def test_comparators_resume_bitwise_too(
    tmp_path: Path, system: dict[str, Any], parts: set[str]
) -> None:
    spec, whole, halves = small_run(**system), tmp_path / "whole", tmp_path / "halves"
    train_until(spec, whole)
    train_until(spec, halves, 3)
    train_until(spec, halves)
    a, b = state(RunFolder(whole)), state(RunFolder(halves))
    assert {key.split("/")[0] for key in a} == {"model", "ema", "optimizer", *parts}
    assert a.keys() == b.keys() and all(torch.equal(a[key], b[key]) for key in a)


def test_a_kill_between_checkpoints_repeats_the_same_numbers(tmp_path: Path, tiny: Tiny) -> None:
    spec = tiny(steps=24)
    whole, killed = RunFolder(tmp_path / "whole"), RunFolder(tmp_path / "killed")
    run_to_end(spec, whole)
    iterator = train(spec, killed, CPU)
    for _ in itertools.islice(iterator, 17):
        pass
    newest = checkpoint.list_checkpoints(killed.checkpoints)[0]
    assert newest.name.startswith("step-00000010")  # the 7 steps since are lost with the process
    _abandon(iterator)
    run_to_end(spec, killed)
    a, b = state(whole), state(killed)
    assert all(torch.equal(a[key], b[key]) for key in a)
    assert logged(whole) == logged(killed)


def _abandon(iterator) -> None:
    """End a run the way a crash does: no checkpoint is written."""
    with pytest.raises(RuntimeError, match="crash"):
        iterator.throw(RuntimeError("crash"))


def test_a_damaged_newest_checkpoint_falls_back_to_the_one_before(
    tmp_path: Path, tiny: Tiny
) -> None:
    spec = tiny(steps=20)
    whole, hurt = RunFolder(tmp_path / "whole"), RunFolder(tmp_path / "hurt")
    run_to_end(spec, whole)
    iterator = train(spec, hurt, CPU)
    for _ in itertools.islice(iterator, 15):
        pass
    iterator.close()
    newest, before = checkpoint.list_checkpoints(hurt.checkpoints)
    newest.write_bytes(newest.read_bytes()[:-100])
    with pytest.warns(UserWarning, match="damaged; the one before it"):
        found = checkpoint.load_latest(hurt.checkpoints)
    assert found is not None and found.step == 10 and before.name.startswith("step-00000010")
    with pytest.warns(UserWarning, match="damaged"):
        run_to_end(spec, hurt)
    a, b = state(whole), state(hurt)
    assert all(torch.equal(a[key], b[key]) for key in a)


def test_a_loss_that_is_not_finite_is_a_divergence(tmp_path: Path, tiny: Tiny) -> None:
    folder = RunFolder(tmp_path / "run")
    with pytest.raises(Diverged, match="at step"):
        run_to_end(tiny(steps=40, train={"lr": 1e30}), folder)
    assert not math.isfinite(logged(folder)[-1][1])
    assert checkpoint.list_checkpoints(folder.checkpoints) == []  # weights that are no numbers


def test_runs_of_a_sweep_see_common_random_numbers(tiny: Tiny) -> None:
    samples = open_data(tiny().data, "train")
    dense, routed = (Batches(tiny(routes=r), samples).at(3) for r in ((), ("0->1",)))
    assert torch.equal(dense.x_BCHW, routed.x_BCHW) and torch.equal(dense.y_B, routed.y_B)
    assert torch.equal(dense.noise_BCHW, routed.noise_BCHW)
    assert dense.routing is None and routed.routing is not None


def test_bf16_trains_close_to_fp32(lab: Lab, tmp_path: Path, tiny: Tiny) -> None:
    full, half = RunFolder(tmp_path / "full"), RunFolder(tmp_path / "half")
    run_to_end(tiny(steps=10, routes=["1->2"]), full)
    run_to_end(tiny(steps=10, routes=["1->2"], precision="bf16"), half)
    for (_, a), (_, b) in zip(logged(full), logged(half)):
        assert a != b and a == pytest.approx(b, rel=0.05)
    assert all(t.dtype != torch.bfloat16 for t in state(half).values())


def gradient_norms(folder: RunFolder) -> dict[int, float]:
    return {e.step: e.value for e in folder.entries() if e.key == "train/gradient_norm"}


@pytest.mark.parametrize("clip", [None, 0.01])
def test_the_gradient_norm_of_the_step_stands_in_the_log(
    clip: float | None, tmp_path: Path, tiny: Tiny
) -> None:
    """Before clipping; the same whether the run was stopped or not."""
    spec = tiny(steps=12, routes=["1->2"], train={"clip": clip})
    whole, parts = RunFolder(tmp_path / "whole"), RunFolder(tmp_path / "parts")
    run_to_end(spec, whole)
    run_to_end(spec, parts, stops=(7,))
    found = gradient_norms(whole)
    assert list(found) == [5, 10, 12] and found == gradient_norms(parts)
    with Trainer(spec, RunFolder(tmp_path / "again"), CPU) as run:
        for step in range(4):
            run.train_step(run.batches.at(step), lr=learning_rates(spec.train)(step))
        run._backward(run.batches.at(4))
        squares = [p.grad.double().square().sum() for p in run.trainable.values()]  # type: ignore[union-attr]
        assert found[5] == pytest.approx(float(sum(squares)) ** 0.5, rel=1e-5)
    assert found[5] > 0.01
