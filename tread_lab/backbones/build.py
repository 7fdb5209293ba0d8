"""The network of a run: one table of backbones by name."""

from __future__ import annotations

from typing import Any

from torch import nn

from tread_lab.backbones.dit import DiT
from tread_lab.backbones.mamba import DiffusionMamba
from tread_lab.backbones.parts import Attention
from tread_lab.backbones.rwkv import DiffusionRWKV
from tread_lab.config import model
from tread_lab.config.errors import lookup
from tread_lab.config.recipe import outputs
from tread_lab.config.registry import Registry
from tread_lab.config.routes import RouteBypass
from tread_lab.config.run import RunSpec
from tread_lab.routing.rejoin import Return

BACKBONES: Registry[type[DiT]] = Registry(
    "backbone",
    {"dit": DiT, "rwkv": DiffusionRWKV, "mamba": DiffusionMamba},
    model.BACKBONES,
)


def build_backbone(spec: RunSpec, **more: Any) -> nn.Module:
    """Return the network of a run, freshly initialised.

    Args:
        more: further arguments of the network, from the systems of the run.

    Raises:
        UserError: unknown backbone or block part.
    """
    data = spec.data
    shape: dict[str, Any] = {"channels": data.channels, "size": data.size, "classes": data.classes}
    shape["out_channels"] = data.channels * outputs(spec.process)
    if isinstance(spec.bypass, RouteBypass):
        more = {"re_enter": Return(spec.bypass.re_entry), **more}
    kind = lookup(BACKBONES, spec.model.backbone, "model.backbone")
    network = kind(spec.model, **shape, fp32_blocks=spec.fp32_blocks, **more)
    for part in (part for l in spec.fp32_blocks for part in network.blocks[l].modules()):
        if isinstance(part, Attention):
            part.by = spec.fp32_attention
    return network
