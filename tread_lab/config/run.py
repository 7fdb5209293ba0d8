"""A training run, complete: model, data, objective, routes, recipe, seed and parent, all frozen."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal

from tread_lab.config.data import DataSpec
from tread_lab.config.decode import Natural, settle, unhashed
from tread_lab.config.errors import UserError, lookup
from tread_lab.config.model import BACKBONES, ModelSpec
from tread_lab.config.recipe import (
    LOSSES,
    EDMSpec,
    ExecutionSpec,
    Loss,
    PlainLoss,
    ProcessSpec,
    StepOrShare,
    TrainSpec,
    outputs,
    step_at,
)
from tread_lab.config.registry import ConditionSpec, SystemSpec, Variants
from tread_lab.config.routes import (
    BYPASSES,
    STAGES,
    Bypass,
    RouteBypass,
    RouteSpec,
    check_selections,
    resolve_routes,
    spans_of,
)

BESIDE = ("repa", "captions")  # fields of systems beside the bypass and the loss, or `None`
_EXACT = ("fp32", "tf32")  # precisions in which no block has to be kept in fp32
_FP32_AFTER = {"off": (), "j": (0,), "j+1": (1,)}  # blocks kept in fp32, counted from the end j


@dataclass(frozen=True, kw_only=True)
class InitSpec:
    """Starting weights: the last checkpoint of another run (the parent), or a file.

    Optimizer, EMA, learning rate and step count start anew.

    Attributes:
        run: complete spec of the parent; part of the signature.
        weights: EMA or raw weights, of the parent or of a file that has both.
        file: a checkpoint with DiT's published names, or of this package, instead of a parent.
        digest: digest of the file, set by the command; part of the signature, unlike the path.
        published_as: `sit` for a published SiT or LightningDiT: its names and shapes match, but
            time and velocity run from noise to data. For flow matching.
        unlabelled: whether an exported run saw no class in any step; set like the digest.
    """

    run: RunSpec | None = None
    weights: Literal["ema", "model"] = "ema"
    file: str | None = unhashed(None)
    digest: str | None = None
    published_as: Literal["sit"] | None = None
    unlabelled: bool = unhashed(False)

    def __post_init__(self) -> None:
        if (self.run is None) == (self.file is None):
            raise UserError("must be either a run or a file")
        if self.published_as is not None and self.file is None:
            raise UserError("published_as: requires a file. Try init_from.file=WEIGHTS.")


@dataclass(frozen=True, kw_only=True)
class RunSpec:
    """Complete spec of one training run: everything that determines the result, and its execution.

    Attributes:
        routes: sequential, disjoint routes; none is the dense network.
        bypass: path of routed tokens around a route; reset to the default without routes.
        routes_from, routes_until: steps at which routes are switched on and off, as numbers or
            fractions of all steps; other steps are dense.
        loss: training loss; without routes reset to the plain loss, unless its class is `dense`.
        repa: alignment with a frozen encoder, or `None`.
        captions: caption encoder for text to image; `None` for class-conditional runs.
        init_from: the run or the file whose weights this one starts from, or `None`.
        precision: arithmetic of the forward and backward pass; weights stay fp32. `tf32` rounds
            the inputs of matrix products, `fp16` scales the loss and skips steps that overflow.
        fp32_block: block near the end j of a route kept in fp32 under bf16 and fp16: `j` in the
            paper, `j+1` in the official code. On a GPU it uses tf32 products, like the official
            code. Attention uses torch's kernel, memory-efficient and slow on a GPU; `/math` uses
            tf32 products, `/flex` the same in a fused kernel of compiled blocks, and `/bf16` rounds
            queries, keys and values to bf16, unlike the official code. `off` without routes, in
            fp32 and in tf32.
        seed: determines every random draw, together with step and sample.
    """

    # First, because its plugins register what other fields name.
    execution: ExecutionSpec = unhashed(factory=ExecutionSpec)
    model: ModelSpec
    data: DataSpec = field(default_factory=DataSpec)
    process: ProcessSpec = field(default_factory=EDMSpec)
    routes: tuple[RouteSpec, ...] = ()
    bypass: Annotated[Bypass, BYPASSES] = field(default_factory=RouteBypass)
    routes_from: StepOrShare = 0
    routes_until: StepOrShare | None = None
    loss: Annotated[Loss, LOSSES] = field(default_factory=PlainLoss)
    repa: Annotated[SystemSpec | None, Variants("repa")] = None
    init_from: InitSpec | None = None
    train: TrainSpec = field(default_factory=TrainSpec)
    precision: Literal["fp32", "tf32", "bf16", "fp16"] = "bf16"
    fp32_block: Literal["off", "j", "j+1", "j+1/math", "j+1/flex", "j+1/bf16"] = "j+1"
    seed: Natural = 0
    captions: Annotated[ConditionSpec | None, Variants("captions")] = None

    def __post_init__(self) -> None:
        if self.data.size % self.model.patch:
            raise UserError(
                f"model.patch: must divide data.size ({self.data.size}), got {self.model.patch}"
            )
        if self.precision == "fp16" and self.train.optimizer != "adamw":
            raise UserError("train.optimizer: must be adamw in fp16. Try precision=bf16.")
        settle(self, **self._resolved())
        settle(self, **{name: part.resolved(self) for name, part in self.systems.items()})
        if self.parent is not None and self.parent.network != self.network:
            raise UserError(
                "init_from.run: must train the same network (model, data, process, bypass). To"
                " continue densely after masking or sprint, keep routes and try routes_until=0."
            )

    def _resolved(self) -> dict[str, Any]:
        """Return the routes as block numbers, their steps as numbers, and what depends on them.

        Without routes all of it has its default, so that equal runs are equal specs.
        """
        routes, steps = resolve_routes(self.routes, self.model.depth), self.train.steps
        check_selections(routes, self.tokens, scans=self.model.scans)
        first = step_at("routes_from", self.routes_from, steps)
        last = step_at("routes_until", steps if (x := self.routes_until) is None else x, steps)
        if not routes:
            resolved = {"routes": (), "routes_from": 0, "routes_until": None, "fp32_block": "off"}
            loss = self.loss if self.loss.dense else PlainLoss()
            return {**resolved, "bypass": RouteBypass(), "loss": loss}
        attends = "heads" in lookup(BACKBONES, self.model.backbone, "model.backbone").options
        block = self.fp32_block if attends else self.fp32_block.partition("/")[0]
        return {
            "routes": routes,
            "routes_from": first,
            "routes_until": last if last < steps else None,
            "fp32_block": "off" if self.precision in _EXACT else block,
        }

    @property
    def systems(self) -> dict[str, SystemSpec]:
        """Specs of the bypass, the loss, and each requested system."""
        parts = {name: getattr(self, name) for name in ("bypass", "loss", *BESIDE)}
        return {name: part for name, part in parts.items() if part is not None}

    @property
    def beside_labels(self) -> list[str]:
        """Labels of the systems other than bypass and loss."""
        parts = (getattr(self, name) for name in BESIDE)
        return [str(part) for part in parts if part is not None and part.in_label]

    @property
    def tokens(self) -> int:
        """N, the tokens of one sample."""
        return (self.data.size // self.model.patch) ** 2

    @property
    def condition(self) -> ConditionSpec | None:
        """Condition in place of classes; `None` for class-conditional runs."""
        return self.captions

    @property
    def text_tokens(self) -> int:
        """T, the condition tokens beside the image tokens in every block."""
        return 0 if self.condition is None else self.condition.tokens

    @property
    def fp32_blocks(self) -> frozenset[int]:
        """The blocks around the end j of every route that stay in fp32."""
        after = _FP32_AFTER[self.fp32_block.partition("/")[0]]
        blocks = (route.blocks[-1] + offset for route in self.routes for offset in after)
        return frozenset(block for block in blocks if block < self.model.depth)

    @property
    def fp32_attention(self) -> str:
        """Attention kernel of these blocks; `fused` is torch's choice."""
        return self.fp32_block.partition("/")[2] or "fused"

    @property
    def spans(self) -> tuple[tuple[int, int], ...]:
        """First and last block of every route."""
        return spans_of(self.routes)

    @property
    def phases(self) -> tuple[tuple[range, tuple[RouteSpec, ...]], ...]:
        """Consecutive phases of the steps, each with its active routes."""
        steps = self.train.steps
        last = steps if self.routes_until is None else int(self.routes_until)
        first = min(int(self.routes_from), last)
        if not self.routes or first == last:
            first = last = 0
        stages = 1 if all(route.rate_end is None for route in self.routes) else STAGES
        ends = [first + (last - first) * k // stages for k in range(stages + 1)]
        on = [
            (range(*ends[k : k + 2]), tuple(route.stage(k) for route in self.routes))
            for k in range(stages)
        ]
        parts = (range(first), ()), *on, (range(last, steps), ())
        return tuple(part for part in parts if part[0])

    @property
    def ancestors(self) -> tuple[RunSpec, ...]:
        """The ancestors of this run, the oldest first."""
        return () if self.parent is None else (*self.parent.ancestors, self.parent)

    def may_know(self, label: Literal["class", "none"]) -> bool:
        """Return whether a step of the run or its ancestors saw classes or the null class; assumed
        for weights of a file, unless their export says otherwise."""
        family, never = (*self.ancestors, self), {"class": 1, "none": 0}[label]
        starts = (one.init_from for one in family if one.init_from is not None)
        of_file = any(start.file and not start.unlabelled for start in starts)
        trained = (one.train for one in family if one.train.steps)
        return of_file or any(train.label_drop != never for train in trained)

    @property
    def parent(self) -> RunSpec | None:
        """The run whose weights this one starts from."""
        return None if self.init_from is None else self.init_from.run

    @property
    def network(self) -> tuple[object, ...]:
        """Settings that determine the set of weights; equal for compatible runs."""
        shape = (self.data.channels, self.data.size, self.data.classes)
        model = dataclasses.replace(self.model, init="adaln_zero")
        seen = None if self.condition is None else self.condition.width
        process = self.process.kind, outputs(self.process), getattr(self.process, "prediction", "")
        return model, shape, seen, process, self.bypass.weights(self.routes)

    def dense(self) -> RunSpec:
        """Return a run of the same size and length without routes and without a parent."""
        return dataclasses.replace(self, routes=(), init_from=None)


def steps_alike(recorded: Mapping[str, Any]) -> bool:
    """Return whether the recorded tree of a run has the same routes in all its steps."""
    first, last = recorded.get("routes_from") or 0, recorded.get("routes_until")
    whole = not first and last in (None, recorded["train"]["steps"])
    routes = recorded.get("routes") or ()
    return not routes or (whole and all(route.get("rate_end") is None for route in routes))
