"""The residual stream lies contiguous in memory, and laying it so changes no weight."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from tread_lab.backbones.dit import PatchEmbedder
from tread_lab.backbones.parts import Attention
from tread_lab.engine.assemble import build_network
from tread_lab.engine.trainer import Trainer
from tread_lab.records.lab import RunFolder
from tread_lab.routing import draw_routing
from tread_lab.specs import RunSpec, decode

MODELS = ("DiT-4x32x2/2", "LightningDiT-4x32x2/2", "RWKV-4x32/2", "Mamba-4x32x4/2")


def run(model: str, *routes: str, **changes: Any) -> RunSpec:
    train = {"steps": 100, "batch": 8, "lr": 3e-3}
    tree = {"model": model, "routes": list(routes), "train": train, "precision": "fp32"}
    return decode(RunSpec, {**tree, **changes})


@pytest.mark.parametrize("routes", [(), ("1->2 by rows",)])
@pytest.mark.parametrize("model", MODELS)
def test_every_block_reads_and_writes_a_contiguous_stream(
    model: str, routes: tuple[str, ...]
) -> None:
    spec, layouts = run(model, *routes), []
    network = build_network(spec)
    for block in network.blocks:
        block.register_forward_hook(
            lambda _, args, out: layouts.append((args[0].is_contiguous(), out.is_contiguous()))
        )
    x = torch.randn(3, 1, 16, 16)
    assert network.x_embedder(x).is_contiguous()
    routing = draw_routing(spec.routes, (3, spec.tokens), "layout")
    network(x, torch.rand(3), torch.tensor([0, 5, 10]), routing)
    assert layouts == [(True, True)] * 4


def transposed_tokens(embedder: PatchEmbedder, x_BCHW: Tensor) -> Tensor:
    """The view that earlier versions returned."""
    return embedder.proj(x_BCHW).flatten(2).transpose(1, 2)


def permuted_attention(
    self: Attention, x_BND: Tensor, rotary_BNP: Tensor | None = None, real_BN: Any = None
) -> Tensor:
    """Queries, keys and values as earlier versions took them apart; no norms, all tokens."""
    assert rotary_BNP is None and real_BN is None
    B, N, D = x_BND.shape
    q, k, v = self.qkv(x_BND).view(B, N, 3, self.heads, D // self.heads).permute(2, 0, 3, 1, 4)
    out: Tensor = self.proj(
        F.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(B, N, D)
    )
    return out


def weights_after_24_steps(spec: RunSpec, folder: Path) -> dict[str, Tensor]:
    with Trainer(spec, RunFolder(folder), torch.device("cpu")) as live:
        for step in range(24):
            live.train_step(live.batches.at(step), lr=3e-3)
    return live.network.state_dict()


@pytest.mark.parametrize("routes", [(), ("1->2",)])
def test_24_training_steps_have_the_weights_of_the_transposed_layout(
    routes: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spec = run("DiT-4x32x2/2", *routes)
    contiguous = weights_after_24_steps(spec, tmp_path / "contiguous")
    monkeypatch.setattr(PatchEmbedder, "forward", transposed_tokens)
    monkeypatch.setattr(Attention, "forward", permuted_attention)
    transposed = weights_after_24_steps(spec, tmp_path / "transposed")
    assert [n for n, t in transposed.items() if not torch.equal(t, contiguous[n])] == []
