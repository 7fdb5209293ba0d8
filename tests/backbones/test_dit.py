"""Claims about DiT: published names, and equal weights of equal seeds."""

from __future__ import annotations

import torch

from tread_lab.backbones.dit import DiT
from tread_lab.engine.assemble import fresh_network
from tread_lab.specs import ModelSpec, RunSpec, decode

PUBLISHED = {
    "x_embedder.proj.weight",
    "t_embedder.mlp.0.weight",
    "t_embedder.mlp.2.bias",
    "pos_embed",
    "y_embedder.embedding_table.weight",
    "blocks.0.attn.qkv.weight",
    "blocks.0.attn.proj.bias",
    "blocks.0.mlp.fc1.weight",
    "blocks.0.mlp.fc2.bias",
    "blocks.0.adaLN_modulation.1.weight",
    "final_layer.linear.weight",
    "final_layer.adaLN_modulation.1.weight",
}


def tiny(**changes: object) -> RunSpec:
    model = {"depth": 4, "width": 32, "heads": 2}
    return decode(RunSpec, {"model": model, "precision": "fp32", **changes})


def test_names_and_shapes_are_the_published_ones() -> None:
    with torch.device("meta"):
        network = DiT(ModelSpec(**ModelSpec.from_shorthand("DiT-S/2")), channels=4, size=32,
                      classes=1000, out_channels=8)  # fmt: skip
    state = network.state_dict()
    assert set(state) >= PUBLISHED
    assert state["pos_embed"].shape == (1, 256, 384)
    assert state["y_embedder.embedding_table.weight"].shape == (1001, 384)
    assert state["blocks.11.adaLN_modulation.1.weight"].shape == (6 * 384, 384)
    assert state["final_layer.linear.weight"].shape == (2 * 2 * 8, 384)
    assert sum(p.numel() for p in network.parameters()) == 32_963_360


def test_equal_seeds_give_equal_weights_and_leave_the_global_stream_alone() -> None:
    torch.manual_seed(5)
    before = torch.random.get_rng_state()
    a, b, c = (fresh_network(tiny(seed=seed)) for seed in (0, 0, 1))
    assert torch.equal(torch.random.get_rng_state(), before)
    same = [torch.equal(p, q) for p, q in zip(a.parameters(), b.parameters())]
    assert all(same)
    assert not torch.equal(a.blocks[0].mlp.fc1.weight, c.blocks[0].mlp.fc1.weight)
