"""Values of a search's objectives in a cell, read from the records of its runs."""

from __future__ import annotations

import math
from collections.abc import Sequence

from tread_lab.config.cell import Trial
from tread_lab.config.errors import UserError, suggest
from tread_lab.config.evaluation import EvaluationSpec
from tread_lab.config.run import RunSpec
from tread_lab.config.signature import signature
from tread_lab.records.lab import Lab
from tread_lab.results.gaps import run_gaps


def cell_values(
    lab: Lab,
    trials: Sequence[Trial[RunSpec]],
    objectives: Sequence[str],
    evaluations: Sequence[EvaluationSpec],
) -> tuple[float, ...] | None:
    """Return every objective of a cell, the mean over its seeds; `None` if one is not finite.

    Raises:
        UserError: an objective that the sweep's evaluations do not measure.
    """
    at_end = [spec for spec in evaluations if spec.step is None]
    values = tuple(
        math.fsum(_value(lab, trial, name, at_end) for trial in trials) / len(trials)
        for name in objectives
    )
    return values if all(math.isfinite(value) for value in values) else None


def _value(lab: Lab, trial: Trial[RunSpec], name: str, at_end: Sequence[EvaluationSpec]) -> float:
    if name.startswith("gap/"):
        if trial.baseline is None:
            return math.nan
        planned = [*map(signature, at_end)]
        gap = run_gaps(lab, trial.run, trial.baseline, planned=planned).get(name)
        return math.nan if gap is None else gap.mean
    value = _metric(lab, trial.run, name, at_end)
    return value - (_metric(lab, trial.baseline, name, at_end) if trial.baseline else 0.0)


def _metric(lab: Lab, run: str, name: str, at_end: Sequence[EvaluationSpec]) -> float:
    folder = lab.run(run)
    metrics: dict[str, float] = dict((folder.result() or {}).get("metrics") or {})
    if not metrics:
        return math.nan
    measured = [folder.evaluation(spec).read() or {} for spec in at_end]
    for tree in measured:
        metrics |= tree.get("metrics", {})
    failed = any(not tree or "problem" in tree for tree in measured)
    if name not in metrics and failed:
        return math.nan
    if name not in metrics:
        raise UserError(f"search.objectives: no run measures {name!r}{suggest(name, metrics)}")
    return float(metrics[name])
