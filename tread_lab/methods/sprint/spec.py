"""SPRINT in a run's spec: the bypass `sprint`."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal

from tread_lab.config.decode import Rate
from tread_lab.config.routes import Bypass, RouteSpec, spans_of
from tread_lab.config.run import RunSpec


@dataclass(frozen=True, kw_only=True)
class SprintBypass(Bypass):
    """SPRINT (Park et al. 2025): mask tokens replace routed ones, then both paths are fused.

    x = W [deep; shallow] + b at the end of the route, also in dense passes; `shallow` is the input
    of the route. The published network routes 2->B-3: dense 2 / sparse / dense 2.

    Attributes:
        path_drop: share of training samples whose deep path is all mask tokens (required by
            path-drop guidance).
        dense_path_drop: the same in steps without routes, such as a dense finetune; by default
            `path_drop`, as in the published code. `None` without such steps.
        mask_token: `learned` as in the paper, or `frozen` at its random start as in the published
            code.
    """

    system: ClassVar[str] = "sprint"
    two_paths: ClassVar[bool] = True

    kind: Literal["sprint"] = "sprint"
    path_drop: Rate = 0.1
    mask_token: Literal["learned", "frozen"] = "learned"
    dense_path_drop: Rate | None = None

    def dropped(self, *, routed: bool) -> float:
        return self.path_drop if routed else self.dense_path_drop or 0.0

    def weights(self, routes: Sequence[RouteSpec]) -> object:
        return spans_of(routes)

    def resolved(self, run: RunSpec) -> SprintBypass:
        """Return the bypass with `dense_path_drop` resolved, for runs with steps without routes."""
        self.one_route(run.routes)
        share = self.path_drop if self.dense_path_drop is None else self.dense_path_drop
        dense_steps = any(not routes for _, routes in run.phases)
        written = dense_steps and (share > 0 or self.path_drop > 0)
        return dataclasses.replace(self, dense_path_drop=share if written else None)

    def __str__(self) -> str:
        return "sprint"
