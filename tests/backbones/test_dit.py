"""Claims about DiT: published names, zero at the start, routing adds nothing."""

from __future__ import annotations

import torch
from torch import Tensor

from tread_lab.backbones.dit import DiT
from tread_lab.engine.assemble import build_network, fresh_network
from tread_lab.routing import BatchRoute, draw_routing
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


def batch(spec: RunSpec) -> tuple[Tensor, Tensor, Tensor]:
    torch.manual_seed(0)
    return torch.randn(3, 1, 16, 16), torch.rand(3), torch.tensor([0, 5, 10])


def woken(network: torch.nn.Module) -> torch.nn.Module:
    """Random weights everywhere, so that no zero hides a mistake."""
    torch.manual_seed(1)
    with torch.no_grad():
        for parameter in network.parameters():
            parameter.add_(0.05 * torch.randn_like(parameter))
    return network


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


def test_the_initial_output_is_exactly_zero_and_the_official_codes_is_not() -> None:
    x, t, y = batch(tiny())
    assert torch.equal(fresh_network(tiny())(x, t, y), torch.zeros(3, 1, 16, 16))
    official = tiny(model={"depth": 4, "width": 32, "heads": 2, "init": "official_code"})
    assert fresh_network(official)(x, t, y).std() > 0.1


def test_routing_adds_no_parameter_and_state_dicts_interchange() -> None:
    dense, routed = fresh_network(tiny()), fresh_network(tiny(routes=["1->2"]))
    assert dense.state_dict().keys() == routed.state_dict().keys()
    routed.load_state_dict(woken(dense).state_dict(), strict=True)
    x, t, y = batch(tiny())
    assert torch.equal(dense(x, t, y), routed(x, t, y))


def test_equal_seeds_give_equal_weights_and_leave_the_global_stream_alone() -> None:
    torch.manual_seed(5)
    before = torch.random.get_rng_state()
    a, b, c = (fresh_network(tiny(seed=seed)) for seed in (0, 0, 1))
    assert torch.equal(torch.random.get_rng_state(), before)
    same = [torch.equal(p, q) for p, q in zip(a.parameters(), b.parameters())]
    assert all(same)
    assert not torch.equal(a.blocks[0].mlp.fc1.weight, c.blocks[0].mlp.fc1.weight)


def test_a_route_changes_the_output_and_every_sample_walks_alone() -> None:
    spec = tiny(routes=["1->2"])
    network = woken(build_network(spec)).eval()
    x, t, y = batch(spec)
    routing = draw_routing(spec.routes, (3, 64), 0)
    out = network(x, t, y, routing)
    assert not torch.allclose(out, network(x, t, y), atol=1e-4)
    assert routing is not None
    alone = tuple(BatchRoute(route.start, route.end, route.keep_BK[:1]) for route in routing)
    first = network(x[:1], t[:1], y[:1], alone)
    assert torch.allclose(out[:1], first, atol=1e-5)


def test_labels_and_levels_matter() -> None:
    network = woken(build_network(tiny()))
    x, t, y = batch(tiny())
    out = network(x, t, y)
    assert not torch.allclose(out, network(x, t, (y + 1) % 11), atol=1e-4)
    assert not torch.allclose(out, network(x, t + 1, y), atol=1e-4)


def test_patches_keep_their_places() -> None:
    network = build_network(tiny())
    x = torch.arange(256.0).view(1, 1, 16, 16)
    tokens = torch.nn.functional.unfold(x, 2, stride=2).transpose(1, 2)
    assert torch.equal(network._unpatchify(tokens), x)


def test_the_fp32_block_runs_in_fp32_under_bf16() -> None:
    spec = tiny(routes=["1->2"], precision="bf16", fp32_block="j+1")
    assert spec.fp32_blocks == {3} and not tiny(routes=["1->2"]).fp32_blocks
    network, seen = woken(build_network(spec)), {}
    for l, block in enumerate(network.blocks):
        hook = lambda module, args, out, l=l: seen.__setitem__(l, out.dtype)  # noqa: E731
        block.attn.qkv.register_forward_hook(hook)
    x, t, y = batch(spec)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        network(x, t, y, draw_routing(spec.routes, (3, 64), 0))
    assert [seen[l] for l in range(4)] == [torch.bfloat16] * 3 + [torch.float32]
