"""Cost of a block that has no formula: counts FLOPs and activations of a pass on fake tensors."""

# n tokens in a block, d width

from __future__ import annotations

import dataclasses
import functools
import math

import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from tread_lab.backbones.build import BACKBONES
from tread_lab.backbones.dit import DiT
from tread_lab.config.errors import lookup
from tread_lab.config.model import BACKBONES as FACTS
from tread_lab.config.model import ModelSpec
from tread_lab.cost.blocks import BlockCost


def counted(model: ModelSpec, l: int) -> BlockCost:
    """Return the counted cost of block `l`, or of the first if all blocks are alike."""
    return _counted(0 if lookup(FACTS, model.backbone, "model.backbone").alike else l)


@functools.cache
def _counted(l: int) -> BlockCost:
    return BlockCost(
        macs=lambda model, n: _counts(model, l, n)[0],
        parameters=lambda model: _counts(model, l, 1)[1],
        kept=lambda model, n, low: _counts(model, l, n)[2],
    )


@functools.cache
def _counts(model: ModelSpec, l: int, n: int) -> tuple[int, int, int]:
    """Count (MACs, parameters, bytes kept for the backward pass in fp32) of block `l`."""
    saved: dict[int, Tensor] = {}

    def save(tensor: Tensor) -> Tensor:
        return saved.setdefault(tensor.untyped_storage()._cdata, tensor)

    with FakeTensorMode():
        network = _network(model, n)
        block = network.blocks[l]
        x_1ND, c_1D = torch.empty(1, n, model.width), torch.empty(1, model.width)
        rotary_1NP = torch.empty(1, n, model.width // model.heads) if model.rope else None
        hooks = torch.autograd.graph.saved_tensors_hooks(save, lambda tensor: tensor)
        x_1ND, c_1D = x_1ND.requires_grad_(), c_1D.requires_grad_()
        with hooks:
            block(x_1ND, c_1D, rotary_1NP)
        products = sdpa_kernel(SDPBackend.MATH)  # torch 2.11 counts no flash attention of a CPU
        with FlopCounterMode(display=False) as flops, products:
            block(x_1ND, c_1D, rotary_1NP)
        trained = [p for p in block.parameters() if p.requires_grad]
        weights = {p.untyped_storage()._cdata for p in block.parameters()}
        kept = sum(t.untyped_storage().nbytes() for k, t in saved.items() if k not in weights)
        return flops.get_total_flops() // 2, sum(p.numel() for p in trained), kept


def _network(model: ModelSpec, n: int) -> DiT:
    """Build a network whose rows are so long that n tokens are whole rows; of one block where all
    are alike."""
    side = max(s for s in range(1, math.isqrt(n) + 1) if n % s == 0)
    build = lookup(BACKBONES, model.backbone, "model.backbone")
    alike = lookup(FACTS, model.backbone, "model.backbone").alike
    shown = dataclasses.replace(model, depth=1) if alike else model
    return build(shown, channels=1, size=side * model.patch, classes=1)
