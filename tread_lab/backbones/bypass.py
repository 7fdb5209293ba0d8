"""What stands at the end of a run's routes: one table of re-entries by the kind of bypass."""

from __future__ import annotations

from collections.abc import Callable

import torch

from tread_lab.backbones.fusion import Fusion
from tread_lab.backbones.masked import MaskDecoder
from tread_lab.routing.re_entry import ReEntry, Return
from tread_lab.specs.bypass import MaskBypass, RouteBypass, SprintBypass
from tread_lab.specs.errors import lookup
from tread_lab.specs.run import RunSpec


def build_re_entry(spec: RunSpec) -> ReEntry:
    """Return the re-entry of a run, freshly initialised.

    Its initialisation leaves the generator as it was, so that the rest of the network starts equal
    whatever the bypass.

    Raises:
        UserError: no table holds the kind of the bypass.
    """
    build = lookup(RE_ENTRIES, spec.bypass.kind, "bypass")
    with torch.random.fork_rng(devices=[]):
        return build(spec)


def _return(spec: RunSpec) -> ReEntry:
    assert isinstance(spec.bypass, RouteBypass)
    return Return(spec.bypass.re_entry)


def _mask_decoder(spec: RunSpec) -> ReEntry:
    assert isinstance(spec.bypass, MaskBypass)
    side = spec.data.size // spec.model.patch
    return MaskDecoder(spec.model, spec.bypass, side=side, spans=_spans(spec))


def _fusion(spec: RunSpec) -> ReEntry:
    assert isinstance(spec.bypass, SprintBypass)
    learned = spec.bypass.mask_token == "learned"
    return Fusion(spec.model.width, spans=_spans(spec), learned=learned)


def _spans(spec: RunSpec) -> tuple[tuple[int, int], ...]:
    return tuple((route.blocks[0], route.blocks[-1]) for route in spec.routes)


RE_ENTRIES: dict[str, Callable[[RunSpec], ReEntry]] = {
    "route": _return,
    "mask": _mask_decoder,
    "sprint": _fusion,
}
