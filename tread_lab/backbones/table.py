"""The network of a run: one table of backbones by name, one of bypasses by kind."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import torch
from torch import nn

from tread_lab.backbones.dit import DiT
from tread_lab.backbones.fusion import Fusion
from tread_lab.backbones.mamba import DiffusionMamba
from tread_lab.backbones.masked import MaskDecoder
from tread_lab.backbones.rwkv import DiffusionRWKV
from tread_lab.backbones.side_interpolater import SideInterpolater
from tread_lab.routing.re_entry import ReEntry, Return
from tread_lab.specs import model
from tread_lab.specs.bypass import MaskBypass, RouteBypass, SprintBypass
from tread_lab.specs.errors import lookup
from tread_lab.specs.objective import outputs
from tread_lab.specs.run import RunSpec

BACKBONES: Mapping[str, type[DiT]] = model.BACKBONES.code(
    {"dit": DiT, "rwkv": DiffusionRWKV, "mamba": DiffusionMamba}
)


def build_backbone(spec: RunSpec) -> nn.Module:
    """Return the network of a run, freshly initialised.

    Raises:
        UserError: the spec names a backbone, block part or bypass that no table holds.
    """
    data = spec.data
    shape = {"channels": data.channels, "size": data.size, "classes": data.classes}
    shape["out_channels"] = data.channels * outputs(spec.process)
    if spec.captions is not None:
        shape["text_width"] = spec.captions.width
    network = lookup(BACKBONES, spec.model.backbone, "model.backbone")
    return network(spec.model, **shape, fp32_blocks=spec.fp32_blocks, re_enter=_re_entry(spec))


def _re_entry(spec: RunSpec) -> ReEntry:
    """Return what stands at the end of a run's routes, freshly initialised.

    Its initialisation leaves the generator as it was, so that the rest of the network starts equal
    whatever the bypass.
    """
    with torch.random.fork_rng(devices=[]):
        return lookup(RE_ENTRIES, spec.bypass.kind, "bypass")(spec)


def _return(spec: RunSpec) -> ReEntry:
    assert isinstance(spec.bypass, RouteBypass)
    return Return(spec.bypass.re_entry)


def _mask_decoder(spec: RunSpec) -> ReEntry:
    assert isinstance(spec.bypass, MaskBypass)
    side = spec.data.size // spec.model.patch
    return MaskDecoder(spec.model, spec.bypass, side=side, spans=_spans(spec))


def _side_interpolater(spec: RunSpec) -> ReEntry:
    return SideInterpolater(spec.model, side=spec.data.size // spec.model.patch, spans=_spans(spec))


def _fusion(spec: RunSpec) -> ReEntry:
    assert isinstance(spec.bypass, SprintBypass)
    learned = spec.bypass.mask_token == "learned"
    return Fusion(spec.model.width, spans=_spans(spec), learned=learned)


def _spans(spec: RunSpec) -> tuple[tuple[int, int], ...]:
    return tuple((route.blocks[0], route.blocks[-1]) for route in spec.routes)


RE_ENTRIES: dict[str, Callable[[RunSpec], ReEntry]] = {
    "route": _return,
    "mask": _mask_decoder,
    "mdt": _side_interpolater,
    "sprint": _fusion,
}
