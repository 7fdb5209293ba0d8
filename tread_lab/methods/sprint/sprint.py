"""SPRINT as it joins a run: what it adds, costs and reads."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tread_lab.config.run import RunSpec
from tread_lab.cost.blocks import Added
from tread_lab.methods.sprint.spec import SprintBypass
from tread_lab.train.joining import System


class Sprint(System):
    """The bypass `sprint`."""

    def network(self, spec: RunSpec) -> Mapping[str, Any]:
        from tread_lab.methods.sprint.fusion import Fusion

        learned = SprintBypass.of(spec).mask_token == "learned"
        return {"re_enter": Fusion(spec.model.width, spans=spec.spans, learned=learned)}

    def added(self, spec: RunSpec, c_out: int) -> Added:
        """W [deep; shallow] + b on all places, 2 d^2 each, and a mask token if it is learned."""
        N, d = spec.tokens, spec.model.width
        token = d if SprintBypass.of(spec).mask_token == "learned" else 0
        return Added(2 * d * d + d + token, d - token, lambda _: N * 2 * d * d, (0, 2 * N * d))


SYSTEM = Sprint()
