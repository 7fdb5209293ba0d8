"""Routes: which blocks which tokens bypass, and how they rejoin."""

from __future__ import annotations

import dataclasses
import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

from tread_lab.config.decode import Rate, settle, within
from tread_lab.config.errors import UserError, placed, shown, suggest
from tread_lab.config.registry import Registry, SystemSpec, Variants
from tread_lab.config.units import short


@dataclass(frozen=True, kw_only=True)
class ReEntrySpec:
    """A routed token after its route: the sum of x_T and x_D_last, each times its flag.

    Flags and names follow the first TREAD code. Shorthands: `identity` (ICCV 2025: the token as it
    entered the route), `v1_sum` (arXiv 2501.04765v1: plus the input embedding), `v1_code` (the
    first code, which adds the embedding twice for a route from block 0: 2 x).

    Attributes:
        x_T: the input embedding x_t, patches with positions.
        x_D_last: the representation just before the route.
        coinciding: factor of the term for a route from block 0, where both terms are equal.
    """

    x_T: bool = False
    x_D_last: bool = True
    coinciding: Literal["once", "twice"] = "once"

    def __post_init__(self) -> None:
        if not (self.x_T or self.x_D_last):
            raise UserError(
                "x_T, x_D_last: must not both be false, because routed tokens would be zero"
            )
        if not (self.x_T and self.x_D_last):
            settle(self, coinciding="once")

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
    """Base of all bypasses.

    Attributes:
        kind: its name.
        two_paths: whether a network has a shallow path that samples without the routed blocks.
        encodes: whether the blocks see kept tokens only, followed by a decoder.
    """

    if TYPE_CHECKING:

        @property
        def kind(self) -> str: ...

    two_paths: ClassVar[bool] = False
    encodes: ClassVar[bool] = False

    def weights(self, routes: Sequence[RouteSpec]) -> object:
        """Return the settings that determine its weights; equal for compatible bypasses."""
        return None

    def one_route(self, routes: Sequence[RouteSpec]) -> RouteSpec:
        """Return the only route of a run.

        Raises:
            UserError: there are several.
        """
        if len(routes) != 1:
            raise UserError(f"bypass: {self.kind} requires one route, got {len(routes)}")
        return routes[0]

    def dropped(self, *, routed: bool) -> float:
        """Return the share of samples whose routed blocks are dropped in a step.

        Args:
            routed: whether the routes are on in the step.
        """
        return 0.0


@dataclass(frozen=True, kw_only=True)
class RouteBypass(Bypass):
    """TREAD: routed tokens return unchanged; no parameters, no decoder."""

    kind: Literal["route"] = "route"
    re_entry: ReEntrySpec = field(default_factory=ReEntrySpec)

    def __str__(self) -> str:
        return "route" if self.re_entry == ReEntrySpec() else f"route {self.re_entry}"


BYPASSES = Variants("bypass", RouteBypass)


STAGES = 8  # of a rate that changes: a compiler makes the blocks anew for each
Position = int | float | str
_ROUTE = r"\s*([^\s>][^>]{0,30}?)\s*->\s*([^>]{1,30}?)(?:\s+by\s+(\w+))?\s*"


@dataclass(frozen=True)
class Selection:
    """Requirements of a selection on the token grid.

    Attributes:
        unit: number of tokens routed together, as a function of the grid's side.
        side: the side of the grid must be a multiple of this.
        keeps_order: whether backbones that scan rows support it.
    """

    unit: Callable[[int], int] = lambda side: 1
    side: int = 1
    keeps_order: bool = False


SELECTIONS = Registry(
    "selection",
    {
        "random": Selection(),
        "rows": Selection(unit=lambda side: side, keeps_order=True),
        "structured": Selection(side=2),
        "bernoulli": Selection(),
        "importance": Selection(),
    },
)


@dataclass(frozen=True, kw_only=True)
class RouteSpec:
    """Tokens routed around blocks `start`..`end`, **both inclusive** (TREAD eq. 5 of SG).

    A position is a block number (`2`), counted from the depth B (`B-4`), or a fraction of the
    depth (`1/6`, `0.25`): block floor(fraction * B + 1/2), that is, rounded half up.

    Attributes:
        start: i, the first block that routed tokens skip.
        end: j, the last block that routed tokens skip.
        rate: s in [0, 1), the fraction of the N tokens that is routed: floor(s N) of them.
        rate_end: s in the last routed steps, reached from `rate` in `STAGES` equal stages. `None`
            for a constant rate. Inference uses `rate`.
        selection: how tokens are drawn, uniformly for every sample: `random` tokens, whole `rows`
            of the token grid (required by scans), equally many tokens of every 2 x 2 window
            (`structured`, as in SPRINT: 1 of 4 stays at 0.75, 2 at 0.5; at other rates windows
            differ by one token), or each token with probability s (`bernoulli`, as in SG's text:
            numbers vary). `importance` mixes the draw with the tokens' L1 norms.
        l1: w in [-1, 1] of `importance`: tokens of lowest (1 - |w|) u + |w| m are routed, u being
            uniform and m the L1 norm of a token as it enters the route, scaled to [0, 1] within its
            sample; w < 0 uses 1 - m. A positive w keeps large norms, a negative one small norms:
            the first code's `l1_reg` is -w. 0 is `random`.
    """

    start: Position
    end: Position
    rate: Rate = 0.5
    rate_end: Rate | None = None
    selection: Annotated[str, SELECTIONS] = "random"
    l1: Annotated[float, within("[-1, 1]")] = 1.0

    def __post_init__(self) -> None:
        if self.rate_end == self.rate:
            settle(self, rate_end=None)
        if self.selection == "importance" and self.l1 == 0:
            settle(self, selection="random", l1=RouteSpec.l1)
        if self.selection != "importance" and self.l1 != RouteSpec.l1:
            got = f"got {self.l1:g} with {self.selection}"
            raise UserError(f"l1: must have selection importance, {got}. Try leaving out l1.")

    @staticmethod
    def from_shorthand(value: Any) -> dict[str, Any]:
        """Return `{start: 2, end: 8}` for `2->8`; `2->8 by rows` has a selection too."""
        match = re.fullmatch(_ROUTE, value) if isinstance(value, str) else None
        if match is None:
            quoted = " (a shell takes an unquoted > for a file)" if str(value)[-1:] == "-" else ""
            raise UserError(f"must be a route, got {shown(value)}{quoted}. Try '2->8'.")
        ends = {"start": _number(match[1]), "end": _number(match[2])}
        return {**ends, "selection": match[3]} if match[3] else ends

    def resolved(self, depth: int) -> RouteSpec:
        """Return the route with block numbers, checked against a network of `depth` blocks."""
        start, end = block_index(self.start, depth), block_index(self.end, depth)
        got = f"got {start}->{end}"
        if not {start, end} <= {*range(depth)}:
            raise UserError(f"must be within blocks 0..{depth - 1} of the network, {got}")
        if start > end:
            raise UserError(f"must start before its end, {got}. Try {end}->{start}.")
        return dataclasses.replace(self, start=start, end=end)

    @property
    def blocks(self) -> range:
        """The blocks that routed tokens skip; the route must be resolved."""
        assert isinstance(self.start, int) and isinstance(self.end, int)
        return range(self.start, self.end + 1)

    def stage(self, k: int) -> RouteSpec:
        """Return the route in stage k of `STAGES`."""
        if self.rate_end is None:
            return self
        rate = self.rate + (self.rate_end - self.rate) * k / (STAGES - 1)
        return dataclasses.replace(self, rate=rate, rate_end=None)

    @property
    def rates(self) -> str:
        """Return `0.5`, or `0.75->0.25` where the rate changes."""
        ends = [self.rate] if self.rate_end is None else [self.rate, self.rate_end]
        return "->".join(map(short, ends))

    def unit(self, tokens: int) -> int:
        """Return how many of `tokens` are routed together: a row of the square grid, or one."""
        return SELECTIONS[self.selection].unit(math.isqrt(tokens))

    def routed(self, tokens: int) -> int:
        """Return the routed tokens: floor(s U) of the U units that `tokens` make (official code).

        For `bernoulli` it is the expected number, floored; the drawn numbers vary around it.
        """
        unit = self.unit(tokens)
        return unit * int(tokens // unit * self.rate + 1e-9)

    def __str__(self) -> str:
        return f"{self.start}->{self.end}"

    @property
    def in_full(self) -> str:
        """Return `2->8 by rows`; the default selection is omitted."""
        l1 = "" if self.l1 == RouteSpec.l1 else f" l1={short(self.l1)}"
        return f"{self}{'' if self.selection == 'random' else f' by {self.selection}{l1}'}"


def block_index(position: Position, depth: int) -> int:
    """Return the block number of a position in a network of `depth` blocks.

    Raises:
        UserError: not a position.
    """
    value = _number(position)
    if isinstance(value, float):
        return int(value * depth + 0.5)
    if isinstance(value, int):
        return value
    match = re.fullmatch(r"B ?- ?(\d{1,9})", value)
    if match is None:
        raise UserError(f"must be a position, got {position!r}. Try 2, B-4, 1/6 or 0.25.")
    return depth - int(match[1])


def spans_of(routes: Sequence[RouteSpec]) -> tuple[tuple[int, int], ...]:
    """Return first and last block of every resolved route."""
    return tuple((route.blocks[0], route.blocks[-1]) for route in routes)


def resolve_routes(routes: Sequence[RouteSpec], depth: int) -> tuple[RouteSpec, ...]:
    """Return routes with block numbers, in order and disjoint, without those of rate 0.

    Raises:
        UserError: a route out of range, out of order or overlapping the one before it.
    """
    resolved: list[RouteSpec] = []
    for k, written in enumerate(routes):
        with placed(f"routes[{k}]"):
            route = written.resolved(depth)
            if resolved and route.blocks[0] <= (last := resolved[-1].blocks[-1]):
                raise UserError(
                    f"must start after block {last}, where the route before ends, got {route}"
                )
        resolved.append(route)
    return tuple(route for route in resolved if max(route.rate, route.rate_end or 0) > 0)


def check_selections(routes: Sequence[RouteSpec], tokens: int, *, scans: bool) -> None:
    """Refuse selections that do not fit the network or its grid of `tokens`."""
    for k, route in enumerate(routes):
        where, facts, side = f"routes[{k}]", SELECTIONS[route.selection], math.isqrt(tokens)
        if scans and not facts.keeps_order:
            raise UserError(
                f"{where}.selection: must keep whole rows for a scanning backbone, got "
                f"{route.selection}. Try '{route} by rows'."
            )
        if side % facts.side:
            raise UserError(
                f"{where}.selection: requires a grid whose side is a multiple of {facts.side}, got"
                f" {route.selection} on {side} x {side} tokens. Try selection: random."
            )
        if max(route.stage(k).routed(tokens) for k in (0, STAGES - 1)) == 0:
            raise UserError(
                f"{where}.rate: must route at least one of {tokens} tokens, got {route.rate:g}."
                f" Try {route.unit(tokens) / tokens:g}."
            )


def _number(text: Position) -> Position:
    """Return 3 for `3`, 0.25 (a fraction of the depth) for `0.25` and `1/4`, else the text."""
    match = re.fullmatch(r"(-?\d{1,9})|(0?\.\d{1,18})|(\d{1,9}) ?/ ?([1-9]\d{,8})", str(text))
    if isinstance(text, str) and match is not None:
        ratio = int(match[3]) / int(match[4]) if match[3] else None
        text = int(match[1]) if match[1] else float(match[2]) if match[2] else ratio or 0.0
    if isinstance(text, float) and not 0 <= text <= 1:
        raise UserError(f"must be a block or a fraction of the depth in [0, 1], got {text}")
    return text
