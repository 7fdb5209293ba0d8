"""What an evaluation is: held-out loss, layer similarity, or metrics of generated samples."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal

from tread_lab.specs.decode import added, decode, encode
from tread_lab.specs.errors import UserError, lookup, suggest
from tread_lab.specs.extensions import Kind
from tread_lab.specs.guidance import GuidanceSpec, RateSpec
from tread_lab.specs.metrics import METRICS

SOLVERS = Kind("solver", dict.fromkeys(("heun", "euler")))


@dataclass(frozen=True, kw_only=True)
class SamplerSpec:
    """How images are generated; defaults are EDM's deterministic sampler as the paper uses it.

    Attributes:
        solver: integrator of the probability-flow ODE.
        steps: steps of the solver (Heun: 2 steps - 1 network calls).
        sigma_min, sigma_max, rho: EDM's noise grid (Karras et al. 2022, eq. 5); a flow goes in
            even steps of t.
        precision: arithmetic of the network; the ODE is integrated in float64.
        labels: `uniform` draws each label from the image's seed, `balanced` takes them in turn.
        seed: image i has the seed `seed + i`, and depends on nothing else.
    """

    solver: Annotated[str, SOLVERS] = "heun"
    steps: int = 40
    sigma_min: float = 0.002
    sigma_max: float = 80.0
    rho: float = 7.0
    guidance: GuidanceSpec = field(default_factory=GuidanceSpec)
    precision: Literal["fp32", "tf32", "bf16", "fp16"] = "fp32"
    labels: Literal["uniform", "balanced"] = "uniform"
    seed: int = 100_000

    def __post_init__(self) -> None:
        if self.steps < 1:
            raise UserError(f"steps: must be positive, got {self.steps}")
        if not 0 < self.sigma_min < self.sigma_max:
            raise UserError("sigma_min: must be positive and below sigma_max")
        if self.rho <= 0:
            raise UserError(f"rho: must be positive, got {self.rho}")


@dataclass(frozen=True, kw_only=True)
class HeldoutSpec:
    """Loss on held-out images at fixed, stratified noise levels, dense and routed.

    Attributes:
        images: how many held-out images.
        levels: equal-probability bins of the noise distribution; every image meets each once.
    """

    kind: Literal["heldout_loss"] = "heldout_loss"
    images: int = 512
    levels: int = 8

    def __post_init__(self) -> None:
        if self.images < 2 or self.levels < 1:
            raise UserError("images: at least 2, levels: at least 1")


@dataclass(frozen=True, kw_only=True)
class SimilaritySpec:
    """Cosine similarity between the residual streams after every two blocks (paper: Fig. 4)."""

    kind: Literal["layer_similarity"] = "layer_similarity"
    images: int = 64
    levels: int = 8

    def __post_init__(self) -> None:
        if self.images < 1 or self.levels < 1:
            raise UserError("images and levels: at least 1")


@dataclass(frozen=True, kw_only=True)
class SamplesSpec:
    """Metrics of `count` generated images, sampled once for all metrics.

    Attributes:
        metrics: `fd` (Frechet distance in the data set's own features), `fid` (the same in
            Inception-2015 features, weights needed), `kid`, `is` (ADM's inception score),
            `is_shuffled` (torch-fidelity's), `precision`, `recall`; none at all draws the sample
            grid only.
        sampler: how images are generated; the experiment's sampler where absent.
        inception_score: the definition that `is` has; written by itself. Records of an earlier
            version lack it: their `is` was torch-fidelity's.
    """

    kind: Literal["samples"] = "samples"
    metrics: tuple[Annotated[str, METRICS], ...] = ()
    count: int = 64
    sampler: SamplerSpec = field(default_factory=SamplerSpec)
    inception_score: Literal["adm"] | None = added(None)

    def __post_init__(self) -> None:
        for name in self.metrics:
            lookup(METRICS, name, "metrics")
        object.__setattr__(self, "inception_score", "adm" if "is" in self.metrics else None)
        if self.count < 1:
            raise UserError(f"count: must be positive, got {self.count}")
        if self.metrics and self.count < 100:
            raise UserError(f"count: {self.count} images are too few for {self.metrics[0]}")


EvaluationSpec = HeldoutSpec | SimilaritySpec | SamplesSpec
KINDS: dict[str, type] = {
    "heldout_loss": HeldoutSpec,
    "layer_similarity": SimilaritySpec,
    "samples": SamplesSpec,
}


def decode_evaluations(
    items: Any,
    sampler: Mapping[str, Any] | None = None,
    path: str = "evaluate",
    cells: Sequence[Mapping[str, Any]] = ({},),
) -> tuple[EvaluationSpec, ...]:
    """The evaluations of a list such as `[heldout_loss, fd@1k, {samples: {count: 64}}]`.

    `fd@1k` is short for `{samples: {metrics: [fd], count: 1000}}`; metrics that share count and
    sampler become one evaluation, so that images are generated once.

    Args:
        sampler: fields of the sampler of every evaluation of samples.
        cells: dotted fields of the sampler; every evaluation of samples is made once per cell.
    """
    if not isinstance(items, list | tuple):
        raise UserError(f"expected a list such as [heldout_loss, fd@1k], got {items!r}").at(path)
    places = [(item, f"{path}[{k}]") for k, item in enumerate(items)]
    return _merged(
        _one(item, sampler or {}, cell, place) for item, place in places for cell in cells
    )


def _one(
    item: Any, sampler: Mapping[str, Any], cell: Mapping[str, Any], path: str
) -> EvaluationSpec:
    if isinstance(item, SamplesSpec) and cell:
        item = {"samples": {k: v for k, v in encode(item).items() if k != "kind"}}
    elif isinstance(item, EvaluationSpec):
        return item
    if isinstance(item, str):
        match = re.fullmatch(r"(\w+)@(\d{1,9})(k?)", item, flags=re.IGNORECASE)
        if match:
            count = int(match[2]) * (1000 if match[3] else 1)
            item = {"samples": {"metrics": [match[1].lower()], "count": count}}
        else:
            item = {item: {}}
    if not isinstance(item, Mapping) or len(item) != 1:
        raise UserError(f"expected a name or {{name: options}}, got {item!r}").at(path)
    (kind, options), *_ = item.items()
    if kind not in KINDS:
        known = [*KINDS, *(f"{name}@1k" for name in METRICS)]
        raise UserError(f"unknown evaluation {kind!r}{suggest(str(kind), known)}").at(path)
    options = _options(options, f"{path}.{kind}")
    if kind == "samples":
        own = _options(options.get("sampler"), f"{path}.{kind}.sampler")
        options["sampler"] = _set({**sampler, **own}, cell)
    spec: EvaluationSpec = decode(KINDS[kind], options, f"{path}.{kind}")
    return spec


def _options(value: Any, path: str) -> dict[str, Any]:
    if value and not isinstance(value, Mapping):
        raise UserError(f"expected a mapping, got {value!r}").at(path)
    return dict(value or {})


_SHORT: dict[str, Any] = {"guidance": GuidanceSpec, "rate": RateSpec}


def _set(tree: dict[str, Any], cell: Mapping[str, Any]) -> dict[str, Any]:
    """A sampler's tree with some dotted fields changed, shorthands opened on the way."""
    for dotted, value in cell.items():
        *parents, leaf = dotted.split(".")
        node = tree
        for parent in parents:
            inner = node.get(parent, {})
            if not isinstance(inner, Mapping):
                inner = _SHORT[parent].from_shorthand(inner) if parent in _SHORT else {}
            node[parent] = dict(inner)
            node = node[parent]
        node[leaf] = value
    return tree


def _merged(found: Iterable[EvaluationSpec]) -> tuple[EvaluationSpec, ...]:
    merged: dict[Any, EvaluationSpec] = {}
    for spec in found:
        key: Any = spec
        if isinstance(spec, SamplesSpec):
            key = (spec.count, spec.sampler)
            before = merged.get(key)
            if isinstance(before, SamplesSpec):
                names = dict.fromkeys((*before.metrics, *spec.metrics))
                spec = SamplesSpec(metrics=tuple(names), count=spec.count, sampler=spec.sampler)
        merged[key] = spec
    return tuple(merged.values())


def count_label(count: int) -> str:
    """`10k` for 10000, `512` for 512: the sample size as metric names carry it."""
    return f"{count // 1000}k" if count % 1000 == 0 else str(count)
