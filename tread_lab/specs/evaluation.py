"""What an evaluation is: held-out loss, layer similarity, or metrics of generated samples."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from itertools import accumulate
from typing import Annotated, Any, Literal, get_args

from tread_lab.specs.decode import added, decode, encode
from tread_lab.specs.errors import UserError, check_positive, lookup, shown, suggest
from tread_lab.specs.evaluation_steps import AT, check_step, joined, steps_of
from tread_lab.specs.extensions import Kind
from tread_lab.specs.guidance import GuidanceSpec, RateSpec
from tread_lab.specs.metrics import METRICS
from tread_lab.specs.objective import DDPM_LEVELS
from tread_lab.specs.references import HELDOUT, ReferenceSpec
from tread_lab.specs.run import RunSpec

SOLVERS = Kind("solver", dict.fromkeys(("heun", "heun_full", "euler", "ddim", "ddpm", "sde")))
# Solvers of one process -> that process.
CHAINS = {"ddpm": "ddpm", "ddim": "ddpm", "sde": "flow", "heun_full": "flow"}
MOST_STEPS = 10_000  # of a sampler; published ones take up to 1,000
RESPACED = ("ddpm", "ddim")  # solvers that go in even steps of t
SIT_LAST_STEP = 0.04  # of SiT's published SDE sampler


@dataclass(frozen=True, kw_only=True)
class SamplerSpec:
    """How images are generated; defaults are EDM's deterministic sampler as the paper uses it.

    Attributes:
        solver: `heun` and `euler` integrate the ODE of any process. `heun` ends with a step of
            Euler, as EDM's, SiT's and REPA's code; `heun_full` does not, which is for a flow alone
            and of second order there. `ddpm` takes DDPM's ancestral steps and `ddim` integrates its
            ODE by Euler, both in even steps of t from 999 to 0 (OpenAI's `ddimN` is another grid:
            0, 20, ..., 980 for 50); `sde` takes those of a flow's SDE with w_t = sigma_t (SiT).
        steps: steps of the solver (Heun: 2 steps - 1 network calls; `heun_full`: 2 steps).
        sigma_min, sigma_max, rho: EDM's noise grid (Karras et al. 2022, eq. 5), of which DDPM takes
            the nearest of its levels; a flow goes in even steps of t.
        last_step: of the `sde`, the last step in t, which adds no noise; 0.04 as in SiT.
        respacing: how steps of t are rounded, where records of an earlier version, which lack it,
            may have rounded otherwise; written by itself.
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
    last_step: float | None = added(None)
    respacing: Literal["strided"] | None = added(None)

    def __post_init__(self) -> None:
        check_positive(self, "steps", "rho")
        if self.steps > MOST_STEPS:
            raise UserError(f"steps: at most {MOST_STEPS:,}, got {self.steps:,}")
        strided = self.solver in RESPACED and _rounds_by_sum(self.steps)
        object.__setattr__(self, "respacing", "strided" if strided else None)
        last = (self.last_step or SIT_LAST_STEP) if self.solver == "sde" else None
        if last is not None and not 0 < last < 1:
            raise UserError(f"last_step: {last} is outside (0, 1)")
        object.__setattr__(self, "last_step", last)
        if not 0 < self.sigma_min < self.sigma_max:
            raise UserError("sigma_min: must be positive and below sigma_max")


def respaced(n: int) -> list[int]:
    """Return t - 1 = 999 i / (n - 1), rounded: the steps of a chain that is n long (Nichol &
    Dhariwal 2021, section 4). As in OpenAI's code the stride is added up in float64, which decides
    ties; a chain of one step, which has no stride there, starts from pure noise.
    """
    if n == 1:
        return [DDPM_LEVELS - 1]
    stride = (DDPM_LEVELS - 1) / (n - 1)
    return [round(t) for t in accumulate([stride] * (n - 1), initial=0.0)]


def _rounds_by_sum(n: int) -> bool:
    """Return whether the sum of rounded strides may decide a step of a chain: a step lies half-way,
    at 499.5 of an odd number of steps, and the stride is no number of the machine."""
    stride = (DDPM_LEVELS - 1) / max(n - 1, 1)
    return n % 2 == 1 < n and Fraction(stride) != Fraction(DDPM_LEVELS - 1, n - 1)


def check_solver(run: RunSpec, sampler: SamplerSpec) -> None:
    """Refuse a solver that the process of `run` does not have.

    Raises:
        UserError: a solver of another process, or more steps than there are levels.
    """
    kind = run.process.kind
    chain = CHAINS.get(sampler.solver, kind)
    if chain != kind:
        own = [name for name in SOLVERS.built_in if CHAINS.get(name, kind) == kind]
        raise UserError(
            f"sampler.solver: {sampler.solver} takes the steps of {chain}, and the process is"
            f" {kind}; choose one of {', '.join(own)}"
        )
    if kind == "ddpm" and sampler.steps > DDPM_LEVELS:
        raise UserError(f"sampler.steps: ddpm has {DDPM_LEVELS:,} levels, got {sampler.steps:,}")


@dataclass(frozen=True, kw_only=True)
class HeldoutSpec:
    """Loss on held-out images at fixed, stratified noise levels, dense and routed.

    Attributes:
        images: how many held-out images.
        levels: equal-probability bins of the noise distribution; every image meets each once.
        pick: which images, the `first` ones, or as many `even`ly spread over all held-out ones,
            which are sorted by class where the data are.
        step: of the run whose EMA weights are measured, such as 50000 or `50%`; `None` is its end.
    """

    kind: Literal["heldout_loss"] = "heldout_loss"
    images: int = 512
    levels: int = 8
    step: int | str | None = added(None)
    pick: Literal["first", "even"] = added("first")

    def __post_init__(self) -> None:
        check_step(self.step)
        if self.images < 2 or self.levels < 1:
            raise UserError("images: at least 2, levels: at least 1")


@dataclass(frozen=True, kw_only=True)
class SimilaritySpec:
    """Cosine similarity between the residual streams after every two blocks (paper: Fig. 4).

    Attributes:
        images, levels: how many held-out images, and noise levels of each.
        pick: which images, as for the held-out loss.
        step: of the run whose EMA weights are measured, such as 50000 or `50%`; `None` is its end.
    """

    kind: Literal["layer_similarity"] = "layer_similarity"
    images: int = 64
    levels: int = 8
    step: int | str | None = added(None)
    pick: Literal["first", "even"] = added("first")

    def __post_init__(self) -> None:
        check_step(self.step)
        if self.images < 1 or self.levels < 1:
            raise UserError("images and levels: at least 1")


@dataclass(frozen=True, kw_only=True)
class SamplesSpec:
    """Metrics of `count` generated images, sampled once for all metrics.

    Attributes:
        metrics: `fd` (Frechet distance in the data set's own features), `fid` (the same in
            Inception-2015 features, weights needed), `sfid` (in its spatial features), `fid_inf`
            (FID of infinitely many images), `kid`, `is`
            (ADM's inception score), `is_shuffled` (torch-fidelity's), `precision`, `recall`;
            without any, only the sample grid is drawn.
        sampler: how images are generated; by default as the experiment says.
        inception_score: the definition that `is` has; written by itself. Records of an earlier
            version lack it: their `is` was torch-fidelity's.
        step: of the run whose EMA weights are measured, such as 50000 or `50%`; `None` is its end.
        reference: the file of statistics that the images are compared with; `None` for the data's
            own held-out images, which names of metrics then say: `fid[heldout]@10k`.
    """

    kind: Literal["samples"] = "samples"
    metrics: tuple[Annotated[str, METRICS], ...] = ()
    count: int = 64
    sampler: SamplerSpec = field(default_factory=SamplerSpec)
    inception_score: Literal["adm"] | None = added(None)
    step: int | str | None = added(None)
    reference: ReferenceSpec | None = added(None)  # noqa: RUF009

    def __post_init__(self) -> None:
        check_step(self.step)
        for name in self.metrics:
            lookup(METRICS, name, "metrics")
        object.__setattr__(self, "inception_score", "adm" if "is" in self.metrics else None)
        check_positive(self, "count")
        for name in self.metrics:
            if self.count < (fewest := METRICS[name].fewest):
                few = f"count: {self.count} images are too few for {name}"
                raise UserError(f"{few}, which needs {fewest}" if fewest > 100 else few)


EvaluationSpec = HeldoutSpec | SimilaritySpec | SamplesSpec
KINDS: dict[str, type[EvaluationSpec]] = {spec.kind: spec for spec in get_args(EvaluationSpec)}


def decode_evaluations(
    items: Any,
    sampler: Mapping[str, Any] | None = None,
    cells: Sequence[Mapping[str, Any]] = ({},),
    reference: ReferenceSpec | None = None,
) -> tuple[EvaluationSpec, ...]:
    """Return the evaluations of a list such as `[heldout_loss, fd@1k, {samples: {count: 64}}]`.

    `fd@1k` is short for `{samples: {metrics: [fd], count: 1000}}`, and `fid[heldout]@1k` is that
    with `reference: heldout`; metrics that share count, sampler, step and reference become one
    evaluation, so that images are generated once.
    `fd@1k at 250, 50%, end` is one evaluation at each of these steps, and so is the key `at`.

    Args:
        reference: of every evaluation of samples that names none.
        sampler: fields of the sampler of every evaluation of samples.
        cells: dotted fields of the sampler; every evaluation of samples is made once per cell.

    Raises:
        UserError: an unknown evaluation or a wrong option, with its dotted path.
    """
    if not isinstance(items, list | tuple):
        example = "expected a list such as [heldout_loss, fd@1k]"
        raise UserError(f"evaluate: {example}, got {shown(items)}")
    places = [(item, f"evaluate[{k}]") for k, item in enumerate(joined(items))]
    default = {"sampler": sampler or {}, "reference": reference}
    return _merged(
        spec
        for item, place in places
        for cell in cells
        for spec in _evaluations(item, default, cell, place)
    )


def _evaluations(
    item: Any, default: Mapping[str, Any], cell: Mapping[str, Any], path: str
) -> Iterator[EvaluationSpec]:
    """Yield the evaluation of an item, once for each of its steps."""
    if isinstance(item, SamplesSpec) and cell:
        item = {"samples": {k: v for k, v in encode(item).items() if k != "kind"}}
    elif isinstance(item, EvaluationSpec):
        yield item
        return
    kind, written = _kind_and_options(item, path)
    path = f"{path}.{kind}"
    options = _options(written, path)
    if kind == "samples":
        own = _options(options.get("sampler"), f"{path}.sampler")
        options["sampler"] = _with_cell({**default["sampler"], **own}, cell)
        reference = options.get("reference", default["reference"])
        options["reference"] = None if reference == HELDOUT else reference
    if AT not in options:
        yield decode(KINDS[kind], options, path)
        return
    if "step" in options:
        raise UserError(f"`{AT}` and `step` say the same; leave one").at(path)
    try:
        steps = steps_of(options.pop(AT))
    except UserError as error:
        raise error.at(path) from None
    yield from (decode(KINDS[kind], {**options, "step": step}, path) for step in steps)


def _kind_and_options(item: Any, path: str) -> tuple[str, Any]:
    """Return `samples` and its options for `fd@1k`, `heldout_loss` and `{}` for that name alone.

    The steps after ` at ` are the option `at`.
    """
    if isinstance(item, str):
        name, said, steps = item.partition(f" {AT} ")
        at = {AT: steps} if said else {}
        pattern = r"(\w+)(\[heldout\])?@(\d{1,9})(k?)"
        if match := re.fullmatch(pattern, name.strip(), flags=re.IGNORECASE):
            count = int(match[3]) * (1000 if match[4] else 1)
            heldout = {"reference": HELDOUT} if match[2] else {}
            return "samples", {"metrics": [match[1].lower()], "count": count, **heldout, **at}
        item = {name.strip(): at}
    if not isinstance(item, Mapping) or len(item) != 1:
        raise UserError(f"expected a name or {{name: options}}, got {shown(item)}").at(path)
    ((kind, options),) = item.items()
    if kind not in KINDS:
        names = [*KINDS, *(f"{name}@1k" for name in METRICS)]
        raise UserError(f"unknown evaluation {kind!r}{suggest(str(kind), names)}").at(path)
    return kind, options


def _options(value: Any, path: str) -> dict[str, Any]:
    if value and not isinstance(value, Mapping):
        raise UserError(f"expected a mapping, got {shown(value)}").at(path)
    return dict(value or {})


_SHORTHANDS: dict[str, Any] = {"guidance": GuidanceSpec, "rate": RateSpec}


def _with_cell(tree: dict[str, Any], cell: Mapping[str, Any]) -> dict[str, Any]:
    """Set dotted fields of a sampler's tree; a shorthand above them is written out."""
    for dotted, value in cell.items():
        *parents, leaf = dotted.split(".")
        node = tree
        for parent in parents:
            inner = node.get(parent, {})
            if not isinstance(inner, Mapping):
                short = _SHORTHANDS.get(parent)
                inner = short.from_shorthand(inner) if short else {}
            node[parent] = dict(inner)
            node = node[parent]
        node[leaf] = value
    return tree


def _merged(specs: Iterable[EvaluationSpec]) -> tuple[EvaluationSpec, ...]:
    """Merge the evaluations of samples that share images; equal ones are one."""
    merged: dict[Any, EvaluationSpec] = {}
    for spec in specs:
        key: Any = spec
        if isinstance(spec, SamplesSpec):
            key = spec.count, spec.sampler, spec.step, spec.reference and spec.reference.name
        first = merged.get(key)
        if isinstance(spec, SamplesSpec) and isinstance(first, SamplesSpec):
            metrics = tuple(dict.fromkeys((*first.metrics, *spec.metrics)))
            spec = replace(spec, metrics=metrics)
        merged[key] = spec
    return tuple(map(_with_needed_reference, merged.values()))


def _with_needed_reference(spec: EvaluationSpec) -> EvaluationSpec:
    """Return an evaluation without the reference that no metric of it compares with."""
    if not isinstance(spec, SamplesSpec) or any(METRICS[m].compares for m in spec.metrics):
        return spec
    return replace(spec, reference=None)


def count_label(count: int) -> str:
    """Return `10k` for 10000, `512` for 512: the sample size as metric names carry it."""
    return f"{count // 1000}k" if count % 1000 == 0 else str(count)
