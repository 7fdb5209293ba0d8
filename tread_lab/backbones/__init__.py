"""Backbones: one table of networks by name, all walking their blocks by the same loop."""

from collections.abc import Collection

from torch import nn

from tread_lab.backbones.bypass import build_re_entry
from tread_lab.backbones.dit import DiT
from tread_lab.backbones.mamba import DiffusionMamba
from tread_lab.backbones.rwkv import DiffusionRWKV
from tread_lab.spec.errors import lookup
from tread_lab.spec.run import RunSpec

BACKBONES: dict[str, type[DiT]] = {
    "dit": DiT,
    "rwkv": DiffusionRWKV,
    "mamba": DiffusionMamba,
}
_FP32_AFTER = {"j": 0, "j+1": 1}  # blocks between the end j of a route and the one kept in fp32


def build_backbone(spec: RunSpec) -> nn.Module:
    """Return the network of a run, freshly initialised.

    Raises:
        UserError: the spec names a backbone, block part or bypass that no table holds.
    """
    data = spec.data
    shape = {"channels": data.channels, "size": data.size, "classes": data.classes}
    network = lookup(BACKBONES, spec.model.backbone, "model.backbone")
    re_enter = build_re_entry(spec)
    return network(spec.model, **shape, fp32_blocks=fp32_blocks(spec), re_enter=re_enter)


def fp32_blocks(spec: RunSpec) -> Collection[int]:
    """Blocks that stay in fp32: around the end j of every route, after `spec.fp32_block`."""
    if spec.fp32_block == "off":
        return ()
    after = lookup(_FP32_AFTER, spec.fp32_block, "fp32_block")
    ends = (route.blocks[-1] + after for route in spec.routes)
    return frozenset(l for l in ends if l < spec.model.depth)


__all__ = ["BACKBONES", "build_backbone", "fp32_blocks"]
