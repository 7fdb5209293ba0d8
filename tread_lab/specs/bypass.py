"""How tokens get around a route: identity, v1's sum, mask decoder, side-interpolater or fusion."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal, cast

from tread_lab.specs.decode import added
from tread_lab.specs.errors import UserError, check_positive, suggest
from tread_lab.specs.model import ModelSpec
from tread_lab.specs.routes import RouteSpec


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
class Bypass:
    """What every bypass says of itself.

    Attributes:
        two_paths: whether a network has a shallow path that samples without the routed blocks.
    """

    two_paths: ClassVar[bool] = False

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


@dataclass(frozen=True, kw_only=True)
class MaskBypass(Bypass):
    """MaskDiT (Zheng et al. 2024): all blocks see the kept tokens, a light decoder all places.

    The route is the whole network, 0->B-1; its tokens are masked. The decoder is part of the
    sampled network. MaskDiT trains it with `loss: {kind: ensemble, form: code}`.

    Attributes:
        depth, width, heads: the decoder; 8 blocks of width 512 beside XL.
        adapter: what the map from the encoder's width to the decoder's starts as: `zero` as in the
            published code, so that at first the decoder sees mask tokens and positions alone, or
            `xavier`.
        fill: what the decoder is given at the places of masked tokens: the trained `mask_token`, or
            the tokens as they entered block 0 (`entry`), with which the decoder sees no token that
            sampling has not, as SD-DiT asks (Zhu et al. 2024).
    """

    kind: Literal["mask"] = "mask"
    depth: int = 8
    width: int = 512
    heads: int = 16
    adapter: Literal["zero", "xavier"] = "zero"
    fill: Literal["mask_token", "entry"] = added("mask_token")

    def __post_init__(self) -> None:
        check_positive(self, "depth", "width", "heads")
        if self.width % self.heads or self.width % 4:
            raise UserError(f"width: {self.width} is no multiple of 4 and of heads {self.heads}")

    def __str__(self) -> str:
        filled = "" if self.fill == "mask_token" else f" {self.fill}"
        return f"mask {self.depth}x{self.width}{filled}"


@dataclass(frozen=True, kw_only=True)
class MdtBypass(Bypass):
    """MDT (Gao et al. 2023): masked latent modelling with a side-interpolater.

    The route begins at block 0 and ends before the decoder blocks: 0->B-3 leaves the two of the
    published code. After it a mask token fills the places of masked tokens, trained positions are
    added, and one more block, the side-interpolater, predicts the masked tokens from all; kept
    tokens pass it by. A dense pass, sampling included, adds the positions alone. MDT trains with
    `loss: both` at rate 0.3, on the block and the positions of `MDT-XL/2`.
    """

    kind: Literal["mdt"] = "mdt"

    def __str__(self) -> str:
        return "mdt"


@dataclass(frozen=True, kw_only=True)
class SprintBypass(Bypass):
    """SPRINT (Park et al. 2025): mask tokens stand in for routed ones, then both paths are fused.

    x = W [deep; shallow] + b at the end of the one route, in dense passes too, where `shallow` is
    what entered the route. The published network routes 2->B-3: dense 2 / sparse / dense 2.

    Attributes:
        path_drop: share of training samples whose deep path is all mask tokens (path-drop
            guidance needs it).
        dense_path_drop: the same in steps without routes, as in the dense finetune; by default
            `path_drop`, as in the published code. It is `None` in a run without such steps.
        mask_token: `learned` as the paper says; the published code leaves it `frozen` at its
            random start.
    """

    two_paths: ClassVar[bool] = True

    kind: Literal["sprint"] = "sprint"
    path_drop: float = 0.1
    mask_token: Literal["learned", "frozen"] = "learned"
    dense_path_drop: float | None = added(None)

    def __post_init__(self) -> None:
        for name in ("path_drop", "dense_path_drop"):
            share = getattr(self, name)
            if share is not None and not 0 <= share < 1:
                raise UserError(f"{name}: {share} is outside [0, 1)")

    def dropped(self, *, routed: bool) -> float:
        return self.path_drop if routed else self.dense_path_drop or 0.0

    def resolved(self, *, dense_steps: bool) -> SprintBypass:
        """Return the bypass with `dense_path_drop` written out where it has an effect.

        Args:
            dense_steps: whether the run has steps without routes.
        """
        share = self.path_drop if self.dense_path_drop is None else self.dense_path_drop
        written = dense_steps and (share > 0 or self.path_drop > 0)
        return dataclasses.replace(self, dense_path_drop=share if written else None)

    def __str__(self) -> str:
        return "sprint"


def with_old_meaning(tree: Any) -> Any:
    """Return the recorded tree of a run with what an earlier version left unsaid.

    Runs recorded without `dense_path_drop` dropped no deep path in dense steps; where a run has no
    such steps, decoding leaves the field out again.
    """
    if not isinstance(tree, Mapping):
        return tree
    tree, bypass, start = dict(tree), tree.get("bypass"), tree.get("init_from")
    if isinstance(bypass, Mapping) and bypass.get("kind") == "sprint":
        tree["bypass"] = {"dense_path_drop": 0.0, **bypass}
    if isinstance(start, Mapping) and start.get("run"):
        tree["init_from"] = {**start, "run": with_old_meaning(start["run"])}
    return tree


BypassSpec = RouteBypass | MaskBypass | MdtBypass | SprintBypass


def bypass_weights(bypass: BypassSpec, routes: Sequence[RouteSpec]) -> object:
    """Return what decides the weights of a bypass; equal for those that can hand them on."""
    spans = tuple((route.start, route.end) for route in routes)
    weights: dict[str, Callable[[], object]] = {
        "route": lambda: None,
        "mask": lambda: dataclasses.replace(cast(MaskBypass, bypass), adapter="zero"),
        "mdt": lambda: ("mdt", spans),
        "sprint": lambda: spans,
    }
    return weights[bypass.kind]()


def check_bypass(bypass: BypassSpec, routes: Sequence[RouteSpec], model: ModelSpec) -> None:
    """Refuse resolved routes, or a network, that this bypass cannot have.

    Raises:
        UserError: masking over a part of the network, several routes where one is needed, or a
            side-interpolater beside blocks without attention.
    """
    if isinstance(bypass, RouteBypass):
        return
    if len(routes) != 1:
        raise UserError(f"bypass: {bypass.kind} needs exactly one route, got {len(routes)}")
    blocks = routes[0].blocks
    if isinstance(bypass, MaskBypass) and len(blocks) != model.depth:
        raise UserError(
            f"bypass: mask covers the whole network, write routes: [0->B-1], not {routes[0]}"
        )
    if not isinstance(bypass, MdtBypass):
        return
    if model.backbone != "dit":
        raise UserError(f"bypass: mdt adds a block with attention; {model.backbone} has none")
    if blocks[0] != 0 or blocks[-1] >= model.depth - 1:
        raise UserError(
            "bypass: mdt masks from block 0 on and needs a block after the route, write routes:"
            f" [0->B-3], not {routes[0]}"
        )
