"""A trained network is built without drawing weights, and is the same bit for bit."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from tests.engine.runs import small_run, train_until
from tread_lab.engine.assemble import build_network, no_init, trained
from tread_lab.engine.checkpoint import load_latest
from tread_lab.records.lab import RunFolder

CPU = torch.device("cpu")
DIT = {"depth": 3, "width": 16, "heads": 2}


@pytest.mark.parametrize(
    "changes",
    [
        {"model": DIT},
        {"model": {**DIT, "norm": "rms", "mlp": "swiglu", "rope": True, "qk_norm": True}},
        {"model": {"backbone": "rwkv", "depth": 3, "width": 16}, "routes": []},
        {"model": {"backbone": "mamba", "depth": 3, "width": 16}, "routes": []},
        {"model": DIT, "routes": ["1->1"], "bypass": "sprint"},
        {
            "model": DIT,
            "routes": ["0->2"],
            "bypass": {"kind": "mask", "depth": 2, "width": 32, "heads": 2},
        },
    ],
)
def test_a_trained_network_equals_one_that_was_initialised_first(
    tmp_path: Path, changes: dict[str, Any]
) -> None:
    spec = small_run(**changes)
    folder = RunFolder(tmp_path)
    folder.create(spec)
    train_until(spec, tmp_path)
    found = load_latest(folder.checkpoints)
    assert found is not None
    expected = build_network(spec)
    expected.load_state_dict({**found.part("model"), **found.part("ema")})
    network = trained(folder, CPU).network
    states = dict(expected.named_parameters()) | dict(expected.named_buffers())
    mine = dict(network.named_parameters()) | dict(network.named_buffers())
    assert mine.keys() == states.keys()
    assert all(torch.equal(mine[name], states[name]) for name in states)


def test_opening_a_trained_run_draws_no_random_numbers(tmp_path: Path) -> None:
    spec = small_run(model=DIT)
    folder = RunFolder(tmp_path)
    folder.create(spec)
    train_until(spec, tmp_path)
    before = torch.random.get_rng_state()
    trained(folder, CPU)
    assert torch.equal(torch.random.get_rng_state(), before)


def test_draws_that_are_repeated_until_they_fit_end() -> None:
    """torch redraws what is out of bounds, in another way where few draws are within them."""
    bounds = [{}, {"a": 0.05}, {"a": -3.0, "b": -2.0}, {"a": 1.0, "b": 1.1}]
    weights = [torch.full((3, 4), 99.0) for _ in bounds]

    def draw() -> None:
        with no_init():
            for tensor, ends in zip(weights, bounds, strict=True):
                nn.init.trunc_normal_(nn.Parameter(tensor), **ends)

    thread = threading.Thread(target=draw, daemon=True)
    thread.start()
    thread.join(20)
    assert not thread.is_alive()
    assert all(tensor.isnan().all() for tensor in weights)
