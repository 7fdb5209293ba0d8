"""What stands at the end of a run's routes, freshly initialised: the only switch on the bypass."""

from __future__ import annotations

import torch

from tread_lab.backbones.fusion import Fusion
from tread_lab.backbones.masked import MaskDecoder
from tread_lab.routing.re_entry import ReEntry, Return
from tread_lab.spec.bypass import MaskBypass, RouteBypass
from tread_lab.spec.run import RunSpec


def build_re_entry(spec: RunSpec) -> ReEntry:
    """The re-entry of a run; its initialisation leaves the generator as it was, so that the rest of
    the network starts equal whatever the bypass."""
    if isinstance(spec.bypass, RouteBypass):
        return Return(spec.bypass.re_entry)
    spans = tuple((route.blocks[0], route.blocks[-1]) for route in spec.routes)
    with torch.random.fork_rng(devices=[]):
        if isinstance(spec.bypass, MaskBypass):
            side = spec.data.size // spec.model.patch
            return MaskDecoder(spec.model, spec.bypass, side=side, spans=spans)
        learned = spec.bypass.mask_token == "learned"
        return Fusion(spec.model.width, spans=spans, learned=learned)
