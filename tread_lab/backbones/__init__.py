"""Backbones: one per architecture, all walking their blocks by the same loop."""

from collections.abc import Collection

from torch import nn

from tread_lab.backbones.bypass import build_re_entry
from tread_lab.backbones.dit import DiT
from tread_lab.backbones.mamba import DiffusionMamba
from tread_lab.backbones.rwkv import DiffusionRWKV
from tread_lab.spec.run import RunSpec


def build_backbone(spec: RunSpec) -> nn.Module:
    """The network of a run, freshly initialised: the only switch on the architecture."""
    data = spec.data
    shape = {"channels": data.channels, "size": data.size, "classes": data.classes}
    network = {"dit": DiT, "rwkv": DiffusionRWKV, "mamba": DiffusionMamba}[spec.model.backbone]
    re_enter = build_re_entry(spec)
    return network(spec.model, **shape, fp32_blocks=fp32_blocks(spec), re_enter=re_enter)


def fp32_blocks(spec: RunSpec) -> Collection[int]:
    """Blocks that stay in fp32: around the end j of every route, after `spec.fp32_block`."""
    if spec.fp32_block == "off":
        return ()
    after = 1 if spec.fp32_block == "j+1" else 0
    ends = (route.blocks[-1] + after for route in spec.routes)
    return frozenset(l for l in ends if l < spec.model.depth)


__all__ = ["build_backbone", "fp32_blocks"]
