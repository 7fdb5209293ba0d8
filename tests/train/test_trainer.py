"""Every backbone learns under a route, and micro-batches change nothing, padded ones included."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

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


class WithHead(System):
    """A system of a package that leaves the start of its network to torch."""

    def part(self, run: Joining) -> Part:
        return Part(trained={"head": torch.nn.Linear(2, 2)})


def test_system_network_starts_from_the_seed(
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
