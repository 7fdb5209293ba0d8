"""Guidance at inference: a strong and a weak branch, the weight between them, and where it acts."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from tread_lab.config.decode import Count, NotNegative, Rate, decode, settle
from tread_lab.config.errors import UserError, placed
from tread_lab.config.routes import RouteSpec, check_selections, resolve_routes, spans_of
from tread_lab.config.run import RunSpec
from tread_lab.config.units import short

_NUMBER = r"[-+]?[\d.]+(?:e[-+]?\d+)?"


@dataclass(frozen=True, kw_only=True)
class RateSpec:
    """A selection rate over sampling: `0.5` is constant, `0.6->0` a cosine from noise to data.

    Attributes:
        first: rate of the first network call, at pure noise.
        last: rate of the last network call.
    """

    first: Rate = 0.0
    last: Rate = 0.0

    @staticmethod
    def from_shorthand(value: Any) -> dict[str, Any]:
        match = re.fullmatch(rf"({_NUMBER})(?:->({_NUMBER}))?", str(value))
        if match is None:
            raise UserError(f"must be a rate, got {value!r}. Try 0.5, or '0.6->0' for a cosine.")
        return {"first": float(match[1]), "last": float(match[2] or match[1])}

    def at(self, progress: float) -> float:
        """Return the rate at sampling progress in [0, 1] (SG: cosine decay)."""
        return self.last + (self.first - self.last) * (1 + math.cos(math.pi * progress)) / 2

    @property
    def zero(self) -> bool:
        """Whether no token is ever routed."""
        return self.first == self.last == 0

    def __str__(self) -> str:
        ends = dict.fromkeys((self.first, self.last))
        return "->".join(map(short, ends))


@dataclass(frozen=True, kw_only=True)
class BranchSpec:
    """One branch of the sum.

    Attributes:
        label: `class` sees the image's class, `none` the null class.
        rate: selection rate of the routes that this branch takes.
        path: `dropped` skips SPRINT's deep blocks and uses mask tokens for their output.
        step: an earlier checkpoint of the same run; `None` for its last.
    """

    label: Literal["class", "none"] | None = None
    rate: RateSpec = field(default_factory=RateSpec)
    step: Count | None = None
    path: Literal["full", "dropped"] = "full"

    def __post_init__(self) -> None:
        if self.path == "dropped" and not self.rate.zero:
            raise UserError(f"path: must be full with a rate, got dropped and {self.rate}")


@dataclass(frozen=True, kw_only=True)
class GuidanceSpec:
    """w D_strong + (1 - w) D_weak; `2.0` alone is classifier-free guidance with that weight.

    The method follows from what the weak branch lacks: its class (CFG, Ho & Salimans 2022), tokens
    (sparse guidance, SG), training (autoguidance, AG, Karras et al. 2024), SPRINT's deep path and
    class (path-drop guidance, PDG: `{weight: 3, weak: {path: dropped}}`), or several.

    Attributes:
        weight: w; 1 is the strong branch alone.
        strong: by default it sees the class, is dense and is the last checkpoint.
        weak: by default drops the class, unless its rate or checkpoint differs from the strong
            branch. So sparse guidance has two conditional branches; `label: none` combines CFG and
            sparse guidance. A branch with `path: dropped` drops the class, as in SPRINT's code;
            `label: class` keeps it.
        interval: noise levels (lowest, highest) within which guidance acts; `None` for all levels.
            Outside, only the strong branch is used.
        channels: guided channels: all, or the first three as in the original DiT; the others come
            from the strong branch.
        routes: blocks that routed tokens skip; by default the run's routes. The branches set the
            rates.
    """

    weight: NotNegative = 1.0
    strong: BranchSpec = field(default_factory=BranchSpec)
    weak: BranchSpec = field(default_factory=BranchSpec)
    interval: tuple[float, float] | None = None
    channels: Literal["all", "first3"] = "all"
    routes: tuple[RouteSpec, ...] = ()

    def __post_init__(self) -> None:
        """Write out what is implied, and forget what has no effect: equal sums are equal specs."""
        if self.interval is not None and self.interval[0] > self.interval[1]:
            raise UserError(f"interval: must be [lowest, highest], got {list(self.interval)}")
        strong, weak = self.strong, self.weak
        alike = (strong.rate, strong.step) == (weak.rate, weak.step) or weak.path == "dropped"
        weak = replace(weak, label=weak.label or ("none" if alike else "class"))
        strong = replace(strong, label=strong.label or "class")
        if self.weight == 1 or weak == strong:  # the strong branch alone
            weak = BranchSpec(label="none")
            settle(self, weight=1.0, interval=None, channels="all")
        dense = strong.rate.zero and weak.rate.zero
        routes = () if dense else tuple(replace(r, rate=0.5, rate_end=None) for r in self.routes)
        settle(self, strong=strong, weak=weak, routes=routes)

    @staticmethod
    def from_shorthand(value: Any) -> dict[str, Any]:
        return {"weight": value}

    @property
    def branches(self) -> tuple[BranchSpec, ...]:
        """The branches with nonzero weight."""
        return (self.strong,) if self.weight == 1 else (self.strong, self.weak)

    @property
    def method(self) -> str:
        """Short name of the method: `CFG`, `SG(0.5/0.9)`, `CFG+AG(200)`, or empty."""
        strong, weak = self.strong, self.weak
        is_guided, other_label = self.weight != 1, weak.label != strong.label
        drops = is_guided and weak.path != strong.path
        sparse = not (strong.rate.zero and weak.rate.zero)
        parts = {
            "unconditional": strong.label == "none",
            f"step({strong.step})": strong.step is not None,
            "path dropped": strong.path == "dropped",
            f"routed({strong.rate})": not is_guided and sparse,
            "CFG": is_guided and other_label and not drops,
            f"PDG{'' if other_label else '(class)'}": drops,
            f"AG({weak.step or 'last'})": is_guided and weak.step != strong.step,
            f"SG({strong.rate}/{weak.rate})": is_guided and sparse,
        }
        return "+".join(part for part, holds in parts.items() if holds)


def in_short(tree: GuidanceSpec | Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings that distinguish guidances: w, method, interval, channels, routes; `None`
    for defaults."""
    guidance = decode(GuidanceSpec, tree)
    channels = None if guidance.channels == "all" else guidance.channels
    routes = "+".join(route.in_full for route in guidance.routes) or None
    where = {"interval": guidance.interval, "channels": channels, "routes": routes}
    return {"w": guidance.weight, "method": guidance.method, **where}


def beyond_weight(guidance: GuidanceSpec | Mapping[str, Any]) -> str:
    """Return the settings beyond the weight: ` AG(250)`, ` interval=[0.2, 5.0]`; empty for CFG or
    no guidance."""
    told = in_short(guidance)
    method = "" if told["method"] == "CFG" else told["method"]
    more = {name: told[name] for name in ("interval", "channels", "routes") if told[name]}
    parts = [method, *(f"{k}={[*v] if isinstance(v, tuple) else v}" for k, v in more.items())]
    return "".join(f" {part}" for part in parts if part)


def routes_taken(run: RunSpec, guidance: GuidanceSpec) -> tuple[RouteSpec, ...]:
    """Return the routes at inference; none if no branch has a rate or drops its path.

    Raises:
        UserError: a rate without a route, an unsupported selection, or a dropped path in a network
            with only one.
    """
    dropped = any(branch.path == "dropped" for branch in guidance.branches)
    if dropped and not run.bypass.two_paths:
        raise UserError("guidance: `path: dropped` requires `bypass: sprint`")
    if not dropped and all(branch.rate.zero for branch in guidance.branches):
        return ()
    routes = resolve_routes(guidance.routes, run.model.depth) or run.routes
    with placed("guidance"):
        if not routes:
            raise UserError('routes: must be given for a dense run. Try routes: ["2->B-4"].')
        check_selections(routes, run.tokens, scans=run.model.scans)
    return routes


def check_guidance(run: RunSpec, guidance: GuidanceSpec) -> None:
    """Check before training that `run` will have what the guidance requires."""
    routes_taken(run, guidance)
    last, kept = run.train.steps, run.execution.keep_steps
    for step in {branch.step or last for branch in guidance.branches}:
        if step > last:
            raise UserError(f"guidance: step must be at most {last} (the last step), got {step}")
        if step != last and step not in kept:
            raise UserError(
                f"guidance: step must have a kept checkpoint, got {step}. Try"
                f" execution.keep_steps={[*kept, step]}."
            )


def check_branches(run: RunSpec, guidance: GuidanceSpec, step: int | str | None) -> None:
    """Refuse branches that are equal at `step`, routes that conflict with a bypass, and labels that
    were never trained.

    Args:
        step: evaluated step of the run, `None` for its end.
    """
    in_network = run.bypass.weights(run.routes) is not None
    if in_network and spans_of(taken := routes_taken(run, guidance)) not in ((), run.spans):
        raise UserError(
            f"guidance.routes: must be absent or equal the run's routes with bypass"
            f" {run.bypass.kind}, got {' + '.join(map(str, taken))}. Try removing guidance.routes."
        )
    labels = {branch.label for branch in guidance.branches}
    if "none" in labels and not run.may_know("none"):
        raise UserError(
            "guidance: must not use the null class, which train.label_drop=0 never trains. Try"
            " train.label_drop=0.1, or set `rate` or `step` under `guidance.weak`."
        )
    if "class" in labels and not run.may_know("class"):
        raise UserError(
            "guidance: must not use classes, which train.label_drop=1 never trains. Try"
            " sampler.guidance={strong: {label: none}}."
        )
    last = step if isinstance(step, int) else run.train.steps
    alike = {replace(branch, step=branch.step or last) for branch in guidance.branches}
    if len(alike) < len(guidance.branches):
        raise UserError(
            f"guidance: must have branches that differ, got step {last} for both. Try an earlier"
            " weak.step."
        )
