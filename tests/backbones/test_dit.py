"""Equal seeds give a DiT equal weights."""

from __future__ import annotations

import torch

from tread_lab.engine.assemble import fresh_network
from tread_lab.specs import RunSpec, decode


def tiny(**changes: object) -> RunSpec:
    model = {"depth": 4, "width": 32, "heads": 2}
    return decode(RunSpec, {"model": model, "precision": "fp32", **changes})


def test_equal_seeds_give_equal_weights_and_leave_the_global_stream_alone() -> None:
    torch.manual_seed(5)
    before = torch.random.get_rng_state()
    a, b, c = (fresh_network(tiny(seed=seed)) for seed in (0, 0, 1))
    assert torch.equal(torch.random.get_rng_state(), before)
    same = [torch.equal(p, q) for p, q in zip(a.parameters(), b.parameters())]
    assert all(same)
    assert not torch.equal(a.blocks[0].mlp.fc1.weight, c.blocks[0].mlp.fc1.weight)
