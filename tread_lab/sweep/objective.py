"""What a cell of a search is worth: metrics of its runs less those of their baselines."""

from __future__ import annotations

import math
from collections.abc import Sequence

from tread_lab.gaps import run_gaps
from tread_lab.records.layout import Lab
from tread_lab.records.names import GAP_HELDOUT, HELDOUT_LOSS
from tread_lab.spec.errors import UserError, suggest
from tread_lab.spec.evaluation import EvaluationSpec
from tread_lab.spec.expansion import Trial
from tread_lab.spec.search import SearchSpec
from tread_lab.spec.sweep import SweepSpec


def objectives_of(search: SearchSpec, sweep: SweepSpec) -> tuple[str, ...]:
    """The objectives of a search, written out.

    Raises:
        UserError: a gap in a sweep that has no baseline.
    """
    default = HELDOUT_LOSS if sweep.baseline is None else GAP_HELDOUT
    found = search.objectives or (default,)
    if sweep.baseline is None and any(name.startswith("gap/") for name in found):
        raise UserError("search.objectives: a gap needs a baseline; use heldout/loss")
    return found


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
        gap = run_gaps(lab, trial.run, trial.baseline).get(name)
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
