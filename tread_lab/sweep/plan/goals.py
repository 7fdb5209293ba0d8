"""What a cell of a search is worth: metrics of its runs less those of their baselines."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Iterator, Sequence

from tread_lab.compare.gaps import run_gaps
from tread_lab.metrics.feature_space import extractor_for
from tread_lab.records import metric_names
from tread_lab.records.lab import Lab
from tread_lab.specs.errors import UserError, suggest
from tread_lab.specs.evaluation import EvaluationSpec, HeldoutSpec, SamplesSpec
from tread_lab.specs.expansion import Trial
from tread_lab.specs.search import SearchSpec
from tread_lab.specs.signature import signature
from tread_lab.specs.sweep import SweepSpec

_COSTS = (
    metric_names.TRAIN_FLOPS,
    metric_names.FAMILY_FLOPS,
    metric_names.TRAIN_SECONDS,
    metric_names.STEP_SECONDS,
    metric_names.IMAGES_PER_S,
    metric_names.PEAK_MEMORY,
)
_OF_LOSSES = (
    metric_names.HELDOUT_LOSS,
    metric_names.HELDOUT_ROUTED,
    metric_names.GAP_TRAIN,
    metric_names.GAP_HELDOUT,
    metric_names.GAP_ROUTE,
)


def objectives_of(
    search: SearchSpec,
    sweep: SweepSpec,
    evaluations: Sequence[EvaluationSpec],
    sources: Collection[str],
) -> tuple[str, ...]:
    """The objectives of a search, written out as tables name them: `fd@1k` is short for one.

    Args:
        evaluations: of every run.
        sources: data that the runs are trained on.

    Raises:
        UserError: a gap in a sweep that has no baseline; what no evaluation measures, or several.
    """
    default = metric_names.HELDOUT_LOSS if sweep.baseline is None else metric_names.GAP_HELDOUT
    asked = search.objectives or (default,)
    if sweep.baseline is None and any(name.startswith("gap/") for name in asked):
        raise UserError("search.objectives: a gap needs a baseline; use heldout/loss")
    measured = Counter(full for spec in evaluations for full, _ in _measured(spec, sources))
    known = Counter(dict.fromkeys(_COSTS, 1)) + measured
    short = {s: full for spec in evaluations for full, s in _measured(spec, sources)}
    found = tuple(short.get(name, name) for name in asked)
    for name in found:
        if known[name] == 0:
            told = suggest(name, known) or f"; the sweep measures {', '.join(sorted(known))}"
            raise UserError(f"search.objectives: no evaluation measures {name!r}{told}")
        if known[name] > 1:
            ways = f"{known[name]} evaluations measure {name}"
            raise UserError(f"search.objectives: {ways}; a search needs one of them: leave one")
    return found


def _measured(spec: EvaluationSpec, sources: Collection[str]) -> Iterator[tuple[str, str]]:
    """The metrics of an evaluation, as tables name them and as sweep files do."""
    if isinstance(spec, SamplesSpec):
        for metric in spec.metrics:
            short = metric_names.sample_metric(metric, "inception", spec.count)
            for extractor in {extractor_for(metric, source) for source in sources}:
                yield metric_names.sample_metric(metric, extractor, spec.count), short
        return
    for name in _OF_LOSSES if isinstance(spec, HeldoutSpec) else (metric_names.SIMILARITY,):
        yield name, name


def cell_values(
    lab: Lab,
    trials: Sequence[Trial],
    objectives: Sequence[str],
    evaluations: Sequence[EvaluationSpec],
) -> tuple[float, ...] | None:
    """Every objective of one cell, the mean over its seeds; nothing if one is not finite.

    Raises:
        UserError: an objective that the sweep's evaluations do not measure.
    """
    values = tuple(
        math.fsum(_value(lab, trial, name, evaluations) for trial in trials) / len(trials)
        for name in objectives
    )
    return values if all(math.isfinite(value) for value in values) else None


def _value(lab: Lab, trial: Trial, name: str, evaluations: Sequence[EvaluationSpec]) -> float:
    if name.startswith("gap/"):
        if trial.baseline is None:
            return math.nan
        planned = [signature(spec) for spec in evaluations]
        gap = run_gaps(lab, trial.run, trial.baseline, planned=planned).get(name)
        return math.nan if gap is None else gap.mean
    mine = _metric(lab, trial.run, name, evaluations)
    other = 0.0 if trial.baseline is None else _metric(lab, trial.baseline, name, evaluations)
    return mine - other


def _metric(lab: Lab, run: str, name: str, evaluations: Sequence[EvaluationSpec]) -> float:
    folder = lab.run(run)
    found: dict[str, float] = dict((folder.result() or {}).get("metrics") or {})
    if not found:
        return math.nan
    for spec in evaluations:
        found |= (folder.evaluation(spec).read() or {}).get("metrics", {})
    if name not in found:
        raise UserError(f"search.objectives: no run measures {name!r}{suggest(name, found)}")
    return float(found[name])
