"""Objectives of a search: the metrics that it optimises, by the evaluations that have them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Sequence

from tread_lab.config.cell import Trial
from tread_lab.config.errors import UserError, lookup, suggest
from tread_lab.config.evaluation import EvaluationSpec, SamplesSpec
from tread_lab.config.labels import count_label
from tread_lab.config.metrics import extractor_for
from tread_lab.config.run import RunSpec
from tread_lab.config.signature import settings_signature
from tread_lab.config.sweep import SearchSpec, SweepSpec
from tread_lab.records import metric_names

_COSTS = (
    metric_names.TRAIN_FLOPS,
    metric_names.FAMILY_FLOPS,
    metric_names.TRAIN_SECONDS,
    metric_names.STEP_SECONDS,
    metric_names.IMAGES_PER_S,
    metric_names.PEAK_MEMORY,
)
_MEASURED = {  # by kind of evaluation; `samples` lists its own metrics
    "heldout_loss": (
        metric_names.HELDOUT_LOSS,
        metric_names.HELDOUT_ROUTED,
        metric_names.GAP_TRAIN,
        metric_names.GAP_HELDOUT,
        metric_names.GAP_ROUTE,
    ),
    "layer_similarity": (metric_names.SIMILARITY,),
}


def objectives_of(
    search: SearchSpec,
    sweep: SweepSpec,
    evaluations: Sequence[EvaluationSpec],
    trials: Sequence[Trial[RunSpec]],
) -> tuple[str, ...]:
    """Return the objectives of a search under their full names: `fd@1k` is short for one.

    By default cells are compared as a ranking compares them: by the gap in held-out loss, or by the
    loss itself where an axis moves the baseline.

    Raises:
        UserError: an objective is a gap in a sweep without baseline, is measured by no evaluation
            or by several, or has no better value.
    """
    has_baseline, sources = sweep.baseline is not None, {t.spec.data.source for t in trials}
    default = metric_names.GAP_HELDOUT if _gaps_rank(trials) else metric_names.HELDOUT_LOSS
    at_end = (spec for spec in evaluations if spec.step is None)
    measured = [names for spec in at_end for names in _measured(spec, sources)]
    full_names = {short: full for full, short in measured}
    names = [*_COSTS, *(full for full, _ in measured)]
    counts = Counter(n for n in names if has_baseline or not n.startswith("gap/"))
    objectives = tuple(full_names.get(name, name) for name in search.objectives or (default,))
    choices = [metric for metric in counts if metric_names.metric_kind(metric).better]
    for name in objectives:
        if name not in choices:
            raise UserError(
                "search.objectives: must be a metric that the sweep measures at the end of a run"
                f" (a gap also requires a baseline), got {name!r}{suggest(name, choices)}"
            )
        if counts[name] > 1:
            raise UserError(
                f"search.objectives: must be of one evaluation, got {counts[name]} that measure"
                f" {name}. Try leaving one."
            )
    return objectives


def _gaps_rank(trials: Sequence[Trial[RunSpec]]) -> bool:
    """Return whether cells are compared by differences to their baselines, as in a ranking."""
    baselines = (trial for trial in trials if trial.role == "baseline")
    kinds = {settings_signature(baseline.spec) for baseline in baselines}
    if len(kinds) < 2:
        return bool(kinds)
    from tread_lab.results.ranking import scales_loss  # pandas

    axes = {axis for trial in trials for axis in trial.cell}
    values = {axis: [trial.cell.get(axis) for trial in trials if trial.cell] for axis in axes}
    return any(map(scales_loss, axes, values.values()))


def _measured(spec: EvaluationSpec, sources: Collection[str]) -> Iterator[tuple[str, str]]:
    """Yield the full name and the short name of every metric of an evaluation."""
    if not isinstance(spec, SamplesSpec):
        yield from ((name, name) for name in lookup(_MEASURED, spec.kind, "evaluate"))
        return
    for metric in spec.metrics:
        short, heldout = f"{metric}@{count_label(spec.count)}", spec.reference is None
        for extractor in {extractor_for(metric, source) for source in sources}:
            full = metric_names.sample_metric(metric, extractor, spec.count, heldout=heldout)
            yield full, short
