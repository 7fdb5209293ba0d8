"""Every backbone learns under a route, and micro-batches change nothing, padded ones included."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from tests.faults.drivers import Zygote
from tread_lab.config import RunSpec, decode
from tread_lab.records.run_folder import RunFolder
from tread_lab.train import trainer
from tread_lab.train.joining import Joining, Part, System
from tread_lab.train.trainer import Trainer

CPU = torch.device("cpu")
MODELS = ("DiT-4x32x2/4", "LightningDiT-4x32x2/4", "RWKV-4x32/4", "Mamba-4x32x4/4")


def run(model: str, selection: str, **execution: Any) -> RunSpec:
    tree = {
        "model": model,
        "routes": [f"1->2 by {selection}"],
        "train": {"steps": 60, "batch": 16, "lr": 8e-3, "betas": [0.9, 0.99], "warmup": 5},
        "precision": "fp32",
        "execution": execution,
    }
    return decode(RunSpec, tree)


def trained(spec: RunSpec, folder: Path, steps: int) -> list[float]:
    """The training loss of every step."""
    with Trainer(spec, RunFolder(folder), CPU) as live:
        losses = []
        for step in range(steps):
            live.train_step(live.batches.at(step), lr=spec.train.lr * min(1.0, (step + 1) / 6))
            live.log_window()
            losses.append(live.loss)
    return losses


@pytest.mark.parametrize("model", MODELS)
def test_the_loss_falls_under_a_route(model: str, tmp_path: Path) -> None:
    losses = trained(run(model, "rows"), tmp_path, 60)
    assert sum(losses[-10:]) < 0.7 * sum(losses[:10])


def test_a_step_moves_weights_by_its_own_rate(tmp_path: Path) -> None:
    spec = run("DiT-4x32/2", "random")
    with Trainer(spec, RunFolder(tmp_path), CPU) as live:
        weights = [p.detach().clone() for p in live.trainable.values()]
        live.train_step(live.batches.at(0), lr=0.0)
        assert all(map(torch.equal, weights, live.trainable.values()))
        live.train_step(live.batches.at(1), lr=1e-3)
        moved = [(p - q).abs().max().item() for p, q in zip(weights, live.trainable.values())]
        assert 0 < max(moved) < 2e-3  # Adam's step is about its rate


class WithHead(System):
    """A system of a package that leaves the start of its network to torch."""

    def part(self, run: Joining) -> Part:
        return Part(trained={"head": torch.nn.Linear(2, 2)})


def test_the_network_of_a_system_starts_from_the_seed_of_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And so alike in every process of a run, whatever these have drawn before."""
    monkeypatch.setattr(trainer, "systems_of", lambda spec: [WithHead()])
    spec, starts = run("DiT-4x32/2", "random"), []
    for seed in (1, 2):
        torch.manual_seed(seed)
        with Trainer(spec, RunFolder(tmp_path / str(seed)), torch.device("cpu")) as made:
            starts.append(made.trainable["head.weight"].detach())
    assert torch.equal(*starts)


@pytest.mark.parametrize("selection", ["rows", "bernoulli"])
def test_micro_batches_change_nothing(selection: str, tmp_path: Path) -> None:
    whole = trained(run(MODELS[1], selection), tmp_path / "whole", 4)
    parts = trained(run(MODELS[1], selection, micro_batch=6), tmp_path / "parts", 4)
    assert parts == pytest.approx(whole, rel=1e-4)


ABSENT = """
import sys
for name in ("torch._dynamo", "torch_fidelity.utils"):
    assert name not in sys.modules, name
    sys.modules[name] = None  # an import of it raises
"""


def test_a_process_without_compiled_blocks_or_inception_imports_neither(
    zygote: Zygote, tmp_path: Path
) -> None:
    measured = "evaluate=[{heldout_loss: {images: 8, levels: 2}}, fd@100]"
    steps = ["train.steps=2", "train.warmup=0", "train.batch=4", "train.clip=1", measured]
    done = zygote.run(tmp_path, "train", "tiny", *steps, "--device", "cpu", prelude=ABSENT)
    assert done.returncode == 0, done.stderr
