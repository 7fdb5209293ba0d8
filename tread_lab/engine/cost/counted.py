"""Cost of a block that has no formula: counts FLOPs and activations of a pass on fake tensors."""

# n tokens in a block, d width

from __future__ import annotations

import dataclasses
import functools
import math

import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils.flop_counter import FlopCounterMode

from tread_lab.backbones.table import BACKBONES
from tread_lab.engine.cost.blocks import BlockCost
from tread_lab.specs.errors import lookup
from tread_lab.specs.model import ModelSpec


@functools.cache
def _counts(model: ModelSpec, n: int) -> tuple[int, int, int]:
    """Count (MACs, parameters, bytes kept for the backward pass in fp32) of one block."""
    saved: dict[int, Tensor] = {}

    def save(tensor: Tensor) -> Tensor:
        return saved.setdefault(tensor.untyped_storage()._cdata, tensor)

    with FakeTensorMode():
        block = _block(model, n)
        x_1ND, c_1D = torch.empty(1, n, model.width), torch.empty(1, model.width)
        rotary_1NP = torch.empty(1, n, model.width // model.heads) if model.rope else None
        hooks = torch.autograd.graph.saved_tensors_hooks(save, lambda tensor: tensor)
        with FlopCounterMode(display=False) as flops, hooks:
            block(x_1ND.requires_grad_(), c_1D.requires_grad_(), rotary_1NP)
        trained = [p for p in block.parameters() if p.requires_grad]
        weights = {p.untyped_storage()._cdata for p in block.parameters()}
        kept = sum(t.untyped_storage().nbytes() for k, t in saved.items() if k not in weights)
        return flops.get_total_flops() // 2, sum(p.numel() for p in trained), kept


def _block(model: ModelSpec, n: int) -> nn.Module:
    """Build the first block of a network whose rows are so long that n tokens are whole rows."""
    side = max(s for s in range(1, math.isqrt(n) + 1) if n % s == 0)
    build = lookup(BACKBONES, model.backbone, "model.backbone")
    one_block = dataclasses.replace(model, depth=1)
    network = build(one_block, channels=1, size=side * model.patch, classes=1)
    return network.get_submodule("blocks.0")


COUNTED = BlockCost(
    macs=lambda model, n: _counts(model, n)[0],
    parameters=lambda model: _counts(model, 1)[1],
    kept=lambda model, n, low: _counts(model, n)[2],
)
