"""The table of backbones by name, and the network of a run."""

from __future__ import annotations

from torch import nn

from tread_lab.backbones.bypass import build_re_entry
from tread_lab.backbones.dit import DiT
from tread_lab.backbones.mamba import DiffusionMamba
from tread_lab.backbones.rwkv import DiffusionRWKV
from tread_lab.specs.errors import lookup
from tread_lab.specs.run import RunSpec

BACKBONES: dict[str, type[DiT]] = {
    "dit": DiT,
    "rwkv": DiffusionRWKV,
    "mamba": DiffusionMamba,
}


def build_backbone(spec: RunSpec) -> nn.Module:
    """Return the network of a run, freshly initialised.

    Raises:
        UserError: the spec names a backbone, block part or bypass that no table holds.
    """
    data = spec.data
    shape = {"channels": data.channels, "size": data.size, "classes": data.classes}
    network = lookup(BACKBONES, spec.model.backbone, "model.backbone")
    re_enter = build_re_entry(spec)
    return network(spec.model, **shape, fp32_blocks=spec.fp32_blocks, re_enter=re_enter)
