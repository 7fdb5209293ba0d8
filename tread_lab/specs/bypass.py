"""How tokens get around a route: TREAD's own ways, and what the ways of other systems have too."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from tread_lab.specs.errors import UserError, suggest
from tread_lab.specs.routes import RouteSpec
from tread_lab.specs.systems import SystemSpec, Variants


@dataclass(frozen=True, kw_only=True)
class ReEntrySpec:
    """What a routed token is after its route: x_T and x_D_last, each times its flag, summed.

    The flags and their names are those of the first TREAD code. By name: `identity` (ICCV 2025: the
    token as it entered the route), `v1_sum` (arXiv 2501.04765v1: the sum with the input embedding),
    `v1_code` (the first code, which adds the one term twice where a route starts at block 0 and
    both terms are the same: 2 x, a quirk).

    Attributes:
        x_T: the input embedding x_t, patches with positions.
        x_D_last: the representation just before the route.
        coinciding: how often both terms count for a route from block 0, where they are one.
    """

    x_T: bool = False
    x_D_last: bool = True
    coinciding: Literal["once", "twice"] = "once"

    def __post_init__(self) -> None:
        if not (self.x_T or self.x_D_last):
            raise UserError("x_T, x_D_last: both are false, so routed tokens would be zero")
        if not (self.x_T and self.x_D_last):
            object.__setattr__(self, "coinciding", "once")

    @staticmethod
    def from_shorthand(value: Any) -> dict[str, Any]:
        """`identity`, `v1_sum` or `v1_code`."""
        if value not in RE_ENTRIES:
            raise UserError(f"unknown re-entry {value!r}{suggest(str(value), RE_ENTRIES)}")
        return dict(RE_ENTRIES[value])

    def __str__(self) -> str:
        return next((name for name, tree in RE_ENTRIES.items() if tree == vars(self)), "x_T")


RE_ENTRIES: dict[str, dict[str, Any]] = {
    "identity": {"x_T": False, "x_D_last": True, "coinciding": "once"},
    "v1_sum": {"x_T": True, "x_D_last": True, "coinciding": "once"},
    "v1_code": {"x_T": True, "x_D_last": True, "coinciding": "twice"},
}


@dataclass(frozen=True, kw_only=True)
class Bypass(SystemSpec):
    """What every bypass says of itself.

    Attributes:
        kind: its name.
        two_paths: whether a network has a shallow path that samples without the routed blocks.
        encodes: whether the blocks see kept tokens alone, and what comes after them is a decoder.
    """

    if TYPE_CHECKING:

        @property
        def kind(self) -> str: ...

    two_paths: ClassVar[bool] = False
    encodes: ClassVar[bool] = False

    def weights(self, routes: Sequence[RouteSpec]) -> object:
        """Return what decides its weights; equal for those that can hand them on."""
        return None

    def one_route(self, routes: Sequence[RouteSpec]) -> RouteSpec:
        """Return the only route of a run.

        Raises:
            UserError: there are several.
        """
        if len(routes) != 1:
            raise UserError(f"bypass: {self.kind} needs exactly one route, got {len(routes)}")
        return routes[0]

    def dropped(self, *, routed: bool) -> float:
        """Return the share of samples whose routed blocks give nothing in a step.

        Args:
            routed: whether the routes are on in the step.
        """
        return 0.0


@dataclass(frozen=True, kw_only=True)
class RouteBypass(Bypass):
    """TREAD: routed tokens come back as they were; no parameter, no decoder."""

    kind: Literal["route"] = "route"
    re_entry: ReEntrySpec = field(default_factory=ReEntrySpec)

    def __str__(self) -> str:
        return "route" if self.re_entry == ReEntrySpec() else f"route {self.re_entry}"


BYPASSES = Variants("bypass", RouteBypass)
