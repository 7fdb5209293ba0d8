"""What an evaluation is, of which step, and how lists of them are written: `fid@10k at 50%`."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Annotated, Any, Literal, get_args

from tread_lab.config.decode import Count, Positive, decode, encode, opened, settle, within
from tread_lab.config.errors import UserError, placed, shown, suggest
from tread_lab.config.fields import merged as set_fields
from tread_lab.config.guidance import GuidanceSpec
from tread_lab.config.metrics import HELDOUT, METRICS, ReferenceSpec
from tread_lab.config.recipe import DDPM_LEVELS
from tread_lab.config.registry import Registry
from tread_lab.config.run import RunSpec
from tread_lab.config.signature import signature

END = "end"
AT = "at"  # between an evaluation and its steps, and the key of the steps in a mapping
BASELINE = "baseline"  # the step at which a run's baseline ends: its own end but under `match`
_STEP = re.compile(
    rf"(\d{{1,9}})(k?)|(\d{{1,2}}(?:\.\d+)?|100(?:\.0+)?)%|{END}|{BASELINE}", flags=re.IGNORECASE
)


def _is_step(step: int | str | None) -> None:
    """Refuse what is neither a positive step, nor a share such as `50%`, nor `None`."""
    if step is not None and step_of(step) != step:
        raise UserError(f"must be a step, got {shown(step)}. Try 250 or 50%.")


# sigma_rel of an average of the weights; snapshots have no others within 1e-3.
EmaLength = Annotated[float, within("[0.03, 0.2]")] | None
# A step of a run, a share of all steps such as `50%`, or `None` for the end.
Step = Annotated[int | str | None, _is_step]


def step_of(written: Any) -> int | str | None:
    """Return the step that `250`, `50k`, `50%`, `baseline` or `end` means; the last is `None`.

    Raises:
        UserError: not a step.
    """
    match = _STEP.fullmatch(str(written).strip().lower())
    if match is None or float(match[1] or match[3] or 1) == 0:
        raise UserError(f"must be a step, got {shown(written)}. Try 250, 50% or end.")
    if match[1]:
        return int(match[1]) * (1000 if match[2] else 1)
    if match[0] == BASELINE:
        return BASELINE
    return None if match[0] == END or float(match[3]) == 100 else f"{float(match[3]):g}%"


def steps_of(written: Any) -> tuple[int | str | None, ...]:
    """Return the distinct steps of `250, 50%, end`, of a list, or of one number.

    Raises:
        UserError: a part is not a step, or the list is empty.
    """
    if isinstance(written, str):
        written = re.split(r"[,\s]+", written.strip().rstrip(","))
    items = written if isinstance(written, list | tuple) else [written]
    return tuple(dict.fromkeys(map(step_of, items or [""])))


def _joined(items: Sequence[Any]) -> list[Any]:
    """Return the items of a list in which a comma between steps has made items of them.

    `[fid@10k at 50000, 100000, kid@1k]` is a list of three; its second item belongs to the first.
    A shell makes words of `fd@1k at 250 end`.
    """
    whole: list[Any] = []
    for item in items:
        before = whole[-1] if whole and isinstance(whole[-1], str) else ""
        is_step = _STEP.fullmatch(str(item).strip()) and f" {AT}" in before
        if before and (item == AT or is_step):
            whole[-1] = f"{before} {item}"
        else:
            whole.append(item)
    return whole


def at_steps(evaluations: Iterable[EvaluationSpec], steps: int) -> tuple[EvaluationSpec, ...]:
    """Return evaluations for a run of `steps`: shares become steps, the last step the end.

    Raises:
        UserError: a step is after the end of the run.
    """
    return tuple(dict.fromkeys(_at(spec, steps) for spec in evaluations))


def _at(spec: EvaluationSpec, steps: int) -> EvaluationSpec:
    step = None if spec.step == BASELINE else spec.step  # of a sweep that matches nothing, or none
    if isinstance(step, str):
        step = max(1, round(float(step.removesuffix("%")) / 100 * steps))
    if step is not None and step > steps:
        raise UserError(
            f"evaluate: step must be at most {steps}, the last step of training, got {step}. Try"
            f" shares such as `{AT} 25%, 50%, {END}`, which fit runs of any length."
        )
    return replace(spec, step=None if step == steps else step)


def without_step(tree: Mapping[str, Any]) -> dict[str, Any]:
    """Return the tree of an evaluation without its step, as at the end of a run."""
    return {name: value for name, value in tree.items() if name != "step"}


def end_signature(tree: Mapping[str, Any]) -> str:
    """Return the signature of an evaluation's tree at the end of a run: equal for all its steps."""
    return signature(decode(KINDS[tree["kind"]], without_step(tree)))


# Solver -> the one process that it belongs to; `None` for the solvers of any.
_OF_PROCESS = {"ddim": "ddpm", "ddpm": "ddpm", "sde": "flow", "heun_full": "flow"}
SOLVERS = Registry[str | None]("solver", {"heun": None, "euler": None, **_OF_PROCESS})
SIT_LAST_STEP = 0.04  # of SiT's published SDE sampler


@dataclass(frozen=True, kw_only=True)
class SamplerSpec:
    """How images are generated; defaults are EDM's deterministic sampler as the paper uses it.

    Attributes:
        solver: `heun` and `euler` integrate the ODE of any process. `heun` ends with an Euler step,
            as EDM's, SiT's and REPA's code. `heun_full` ends with a full Heun step; only for flows,
            where it is second-order. `ddpm` takes DDPM's ancestral steps and `ddim` integrates
            its ODE by Euler, both in even steps of t from 999 to 0 (OpenAI's `ddimN` has another
            grid: 0, 20, ..., 980 for 50). `sde` takes Euler-Maruyama steps of a flow's SDE with
            w_t = sigma_t (SiT).
        steps: steps of the solver (Heun: 2 steps - 1 network calls; `heun_full`: 2 steps).
        sigma_min, sigma_max, rho: EDM's noise grid (Karras et al. 2022, eq. 5); DDPM uses the
            nearest of its levels. A flow uses even steps of t instead.
        last_step: size in t of the last step of `sde`, which adds no noise; 0.04 as in SiT.
        precision: arithmetic of the network; the ODE is integrated in float64.
        labels: `uniform` draws each label from the image's seed, `balanced` cycles through the
            classes.
        seed: image i has the seed `seed + i`, its only source of randomness.
    """

    solver: Annotated[str, SOLVERS] = "heun"
    steps: Annotated[int, within("[1, 10000]")] = 40
    sigma_min: Positive = 0.002
    sigma_max: Positive = 80.0
    rho: Positive = 7.0
    guidance: GuidanceSpec = field(default_factory=GuidanceSpec)
    precision: Literal["fp32", "tf32", "bf16", "fp16"] = "fp32"
    labels: Literal["uniform", "balanced"] = "uniform"
    seed: int = 100_000
    last_step: Annotated[float, within("(0, 1)")] | None = None

    def __post_init__(self) -> None:
        last: float | None = SIT_LAST_STEP if self.last_step is None else self.last_step
        settle(self, last_step=last if self.solver == "sde" else None)
        if self.sigma_min >= self.sigma_max:
            raise UserError(
                f"sigma_min: must be below sigma_max ({self.sigma_max:g}), got {self.sigma_min:g}."
                " Try sigma_min=0.002 and sigma_max=80."
            )


def check_solver(run: RunSpec, sampler: SamplerSpec) -> None:
    """Refuse a solver that the process of `run` does not have."""
    kind = run.process.kind
    own = [name for name, process in SOLVERS.items() if process in (None, kind)]
    if sampler.solver not in own:
        raise UserError(
            f"sampler.solver: must be one of {', '.join(own)} for the process {kind}, got"
            f" {sampler.solver}"
        )
    if kind == "ddpm" and sampler.steps > DDPM_LEVELS:
        raise UserError(f"sampler.steps: must be at most {DDPM_LEVELS} levels, got {sampler.steps}")


def check_ema(run: RunSpec, evaluation: EvaluationSpec) -> None:
    """Refuse an EMA length without a snapshot of `run` at the requested step."""
    if evaluation.ema is None:
        return
    last = run.train.steps if evaluation.step is None else evaluation.step
    sampler = evaluation.sampler if isinstance(evaluation, SamplesSpec) else SamplerSpec()
    kept = run.train.ema.snapshot_steps(run.train.steps)
    for step in {last, *(branch.step or last for branch in sampler.guidance.branches)}:
        if step not in kept:
            raise UserError(
                f"evaluate: ema requires a snapshot at step {step}. Try train.ema.snapshots=32"
                " and one of its steps."
            )


@dataclass(frozen=True, kw_only=True)
class HeldoutSpec:
    """Loss on held-out images at fixed, stratified noise levels, dense and routed.

    Attributes:
        images: how many held-out images.
        levels: equal-probability bins of the noise distribution; every image meets each once.
        pick: the `first` images, or `even`ly spaced ones, for data sorted by class.
        step: training step of the EMA weights, such as 50000 or `50%`; `None` is the end.
        ema: EMA length as a share of the steps so far (EDM2); a list makes one evaluation each.
            `None` is the EMA of the run.
    """

    kind: Literal["heldout_loss"] = "heldout_loss"
    images: Annotated[int, within("[2, inf)")] = 512
    levels: Count = 8
    step: Step = None
    pick: Literal["first", "even"] = "first"
    ema: EmaLength = None


@dataclass(frozen=True, kw_only=True)
class SimilaritySpec:
    """Cosine similarity between the residual streams after each pair of blocks (Fig. 4).

    Attributes:
        images, levels: how many held-out images, and noise levels of each.
        pick: which images, as for the held-out loss.
        step, ema: of the weights that are measured, as for the held-out loss.
    """

    kind: Literal["layer_similarity"] = "layer_similarity"
    images: Count = 64
    levels: Count = 8
    step: Step = None
    pick: Literal["first", "even"] = "first"
    ema: EmaLength = None


@dataclass(frozen=True, kw_only=True)
class SamplesSpec:
    """Metrics of `count` generated images, sampled once for all metrics; or their means over sets.

    Attributes:
        metrics: `fd` (Frechet distance in the data set's own features), `fid` (the same in
            Inception-2015 features, weights needed), `sfid` (in its spatial features), `kid`, `is`
            (ADM's inception score), `is_shuffled` (torch-fidelity's), `precision`, `recall`;
            without any, only the sample grid is drawn.
        sets: number of sets of `count` images with disjoint seeds; their spread is recorded.
        sampler: how images are generated; by default the experiment's sampler.
        step, ema: of the weights that are measured, as for the held-out loss.
        reference: file of reference statistics; `None` for the held-out images, as in
            `fid[heldout]@10k`.
    """

    kind: Literal["samples"] = "samples"
    metrics: tuple[Annotated[str, METRICS], ...] = ()
    count: Count = 64
    sets: Count = 1
    sampler: SamplerSpec = field(default_factory=SamplerSpec)
    step: Step = None
    reference: ReferenceSpec | None = None
    ema: EmaLength = None

    def __post_init__(self) -> None:
        settle(self, metrics=tuple(dict.fromkeys(self.metrics)))
        for name in self.metrics:
            if self.count < (fewest := METRICS[name].fewest):
                raise UserError(f"count: must be at least {fewest} for {name}, got {self.count}")

    @property
    def images(self) -> int:
        """Number of generated images."""
        return self.sets * self.count


EvaluationSpec = HeldoutSpec | SimilaritySpec | SamplesSpec
KINDS: dict[str, type[EvaluationSpec]] = {spec.kind: spec for spec in get_args(EvaluationSpec)}


@dataclass(frozen=True, kw_only=True)
class EvaluationDefaults:
    """Default settings of evaluations, from the experiment, stored with each run.

    Metric names list only deviations from these settings.

    Attributes:
        sampler: the experiment's sampler as written; other fields have the defaults of the class.
        reference: statistics that images are compared with; `None` for held-out images.
        heldout_loss, layer_similarity: the first probe of each kind that is planned.
    """

    sampler: Mapping[str, Any] = field(default_factory=dict)
    reference: ReferenceSpec | None = None
    heldout_loss: HeldoutSpec = field(default_factory=HeldoutSpec)
    layer_similarity: SimilaritySpec = field(default_factory=SimilaritySpec)

    def with_probes(self, planned: Iterable[EvaluationSpec]) -> EvaluationDefaults:
        """Return the defaults with the first planned probe of each kind."""
        probes = [spec for spec in planned if not isinstance(spec, SamplesSpec)]
        first = {spec.kind: replace(spec, step=None) for spec in reversed(probes)}
        return replace(self, **first)  # type: ignore[arg-type]

    def without_folders(self) -> EvaluationDefaults:
        """Return the defaults with the reference by name, without its path."""
        named = None if self.reference is None else replace(self.reference, path=None)
        return replace(self, reference=named)


def decode_evaluations(
    items: Any,
    defaults: EvaluationDefaults | None = None,
    cells: Sequence[Mapping[str, Any]] = ({},),
) -> tuple[EvaluationSpec, ...]:
    """Return the evaluations of a list such as `[heldout_loss, fd@1k, {samples: {count: 64}}]`.

    `fd@1k` is short for `{samples: {metrics: [fd], count: 1000}}`; `x3` adds `sets: 3`, and
    `fid[heldout]@1k` adds `reference: heldout`. Metrics that share count, sampler, step and
    reference become one evaluation, so that images are generated once. `fd@1k at 250, 50%, end` is
    one evaluation at each of these steps, and so is the key `at`; with options it is `{fd@1k: {ema:
    [0.05, 0.1]}}`.

    Args:
        defaults: settings that items omit; `None` for the defaults of their classes.
        cells: dotted sampler fields; each evaluation of samples is repeated per cell.

    Raises:
        UserError: an unknown evaluation or a wrong option, with its dotted path.
    """
    if not isinstance(items, list | tuple):
        raise UserError(f"evaluate: must be a list, got {shown(items)}. Try [heldout_loss, fd@1k].")
    usual = defaults or EvaluationDefaults()
    decode(SamplerSpec, usual.sampler, "sampler")  # which no evaluation here may use
    places = [(item, f"evaluate[{k}]") for k, item in enumerate(_joined(items))]
    return _merged(
        spec
        for item, place in places
        for cell in cells
        for spec in _evaluations(item, usual, cell, place)
    )


def _evaluations(
    item: Any, usual: EvaluationDefaults, cell: Mapping[str, Any], path: str
) -> list[EvaluationSpec]:
    """Return the evaluation of an item, once for each of its steps."""
    if isinstance(item, EvaluationSpec):
        return [item]
    kind, options = _kind_and_options(item, path)
    path = f"{path}.{kind}"
    with placed(path):
        if kind == "samples":
            own = opened(None, options.get("sampler") or {})
            options["sampler"] = set_fields(SamplerSpec, {**usual.sampler, **own}, cell)
            reference = options.get("reference", usual.reference)
            options["reference"] = None if reference == HELDOUT else reference
        else:
            options = {**without_step(encode(getattr(usual, kind))), **options}
        steps = steps_of(options.pop(AT)) if AT in options else (options.get("step"),)
    lengths = ema if isinstance(ema := options.get("ema"), list | tuple) else [ema]
    each = ({**options, "step": step, "ema": length} for length in lengths for step in steps)
    return [decode(KINDS[kind], own, path) for own in each]


def _kind_and_options(item: Any, path: str) -> tuple[str, dict[str, Any]]:
    """Return `samples` and its options for `fd@1k`, `heldout_loss` and `{}` for that name alone.

    The steps after ` at ` are the option `at`.
    """
    if isinstance(item, str):
        name, said, steps = item.partition(f" {AT} ")
        item = {name.strip(): {AT: steps} if said else {}}
    if not isinstance(item, Mapping) or len(item) != 1:
        raise UserError(f"must be a name or {{name: options}}, got {shown(item)}").at(path)
    ((kind, options),) = item.items()
    named = dict[str, Any]()
    pattern = r"(\w+)(\[heldout\])?@(\d{1,9})(k?)(?: x(\d{1,3}))?"
    if match := re.fullmatch(pattern, str(kind), flags=re.IGNORECASE):
        count = int(match[3]) * (1000 if match[4] else 1)
        named = {"metrics": [match[1].lower()], "count": count, "sets": int(match[5] or 1)}
        named |= {"reference": HELDOUT} if match[2] else {}
        kind = "samples"
    if kind not in KINDS:
        digits = re.search(r"\d+k?$", str(kind))
        names = [*KINDS, *(f"{name}@{digits[0] if digits else '1k'}" for name in METRICS)]
        raise UserError(f"unknown evaluation {kind!r}{suggest(str(kind), names)}").at(path)
    with placed(f"{path}.{kind}"):
        return kind, {**named, **opened(None, options or {})}


def _merged(specs: Iterable[EvaluationSpec]) -> tuple[EvaluationSpec, ...]:
    """Merge the evaluations of samples that share images; equal ones are one. What compares with
    no real image has no reference."""
    merged: dict[EvaluationSpec, EvaluationSpec] = {}
    for spec in specs:
        key = replace(spec, metrics=()) if isinstance(spec, SamplesSpec) else spec
        if isinstance(first := merged.get(key), SamplesSpec) and isinstance(spec, SamplesSpec):
            spec = replace(spec, metrics=(*first.metrics, *spec.metrics))
        merged[key] = spec
    return tuple(
        replace(spec, reference=None)
        if isinstance(spec, SamplesSpec) and not any(METRICS[m].compares for m in spec.metrics)
        else spec
        for spec in merged.values()
    )
