"""One row a trial: its state, its settings, what was measured, its gaps to the baseline."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pandas as pd

from tread_lab.compare.gaps import recorded_gaps
from tread_lab.frames.columns import COUNT, HIGH, KEPT, LOW, metric_columns, plain
from tread_lab.frames.reading import Memory, Record, numbers, read_records
from tread_lab.records.lab import Lab, SweepFolder
from tread_lab.records.plan import StoredPlan, StoredTrial
from tread_lab.records.status import RunState
from tread_lab.specs.errors import UserError
from tread_lab.specs.evaluation_labels import suffixes
from tread_lab.specs.labels import cell_label

FIRST = ("run", "role", "seed", "state", "reason", "baseline", "cell")
WHOLE = ("route_start", "route_end", "steps_done")
NO_RESULT = {  # state of a baseline that ended -> what it means for its trials
    state: f"its baseline {state.lacks_result}: there is nothing to compare with"
    for state in RunState
    if state.lacks_result
}


@dataclass(frozen=True)
class _Gaps:
    """The gaps of a run as columns, an interval's ends beside each, or why there are none."""

    columns: dict[str, float]
    problem: str = ""


def trials_frame(
    lab: Lab, sweep: str | SweepFolder, *, memory: Memory | None = None
) -> pd.DataFrame:
    """One row per trial of the plan, in plan order.

    Columns: run, role, seed, state, reason, baseline (the run it is compared with), cell (its
    label), the axis values, the parameters of `names.parameters`, steps_done, metrics of
    the evaluations, gaps (`gap/heldout`, with `:low` and `:high`, `:n` images
    and `:kept`, the share of variance that pairing left)
    and costs. Metric columns are those with `/` or `@` in their name. **Only completed runs have
    numbers**: any other trial is a row with its state and NaN.

    A completed trial whose baseline ended without a result has that as its reason.

    Where a sweep has baselines of several kinds, each has the axis values in which they differ.

    Args:
        memory: makes the next reading of the same sweep quick.

    `frame.attrs["axes"]` lists the axis columns, `frame.attrs["planned"]` those of the evaluations
    that this sweep asked for, `frame.attrs["foreign"]` those of others.
    """
    folder = lab.known_sweep(sweep) if isinstance(sweep, str) else sweep
    return plan_frame(lab, folder.plan(), memory=memory)


def plan_frame(lab: Lab, plan: StoredPlan, *, memory: Memory | None = None) -> pd.DataFrame:
    """`trials_frame` of a plan that was read already: a search's plan grows between readings."""
    plan = plan.with_baseline_cells()
    memory = Memory() if memory is None else memory
    records = read_records(lab, plan, memory)
    names, gaps = _metric_names(plan, records), _gaps(plan, records)
    frame = pd.DataFrame(
        _row(trial, records[trial.run], gaps[trial.run, trial.baseline], names, memory)
        for trial in plan.trials
    )
    axes = list(dict.fromkeys(axis for trial in plan.trials for axis in trial.cell))
    metrics = metric_columns(frame)
    order = dict.fromkeys([*FIRST, *axes, *frame.columns.drop([*FIRST, *metrics], errors="ignore")])
    frame = frame.reindex(columns=[*order, *metrics])
    whole = [*(axis for axis in axes if _is_whole(frame[axis])), *WHOLE]
    types: dict[str, Any] = {**dict.fromkeys(metrics, float), **dict.fromkeys(whole, "Int64")}
    frame = frame.astype({column: kind for column, kind in types.items() if column in frame})
    planned = plan.planned
    asked = {column: None for (sig, _), column in names.items() if sig in planned}
    foreign = [column for column in dict.fromkeys(names.values()) if column not in asked]
    frame.attrs |= {"axes": axes, "planned": list(asked), "foreign": foreign}
    return frame


def _row(
    trial: StoredTrial,
    record: Record,
    gaps: _Gaps,
    names: dict[tuple[str, str], str],
    memory: Memory,
) -> dict[str, Any]:
    values = {
        names[sig, metric]: value
        for sig, tree in record.evaluations.items()
        for metric, value in numbers(tree).items()
    }
    known = memory.parameters_of(trial.run, trial.spec)
    return {
        "run": trial.run,
        "role": trial.role,
        "seed": trial.seed,
        "state": record.state,
        "reason": gaps.problem or record.reason,
        "baseline": trial.baseline,
        "cell": cell_label(trial),
        **{axis: plain(value) for axis, value in trial.cell.items()},
        **{name: None if value == "" else value for name, value in known.items()},
        "steps_done": record.steps,
        **values,
        **gaps.columns,
        **record.costs,
    }


def _gaps(plan: StoredPlan, records: dict[str, Record]) -> dict[tuple[str, str | None], _Gaps]:
    """(run, baseline) -> their gaps; in order of baselines, so that each of them is read once."""
    pairs = {(trial.run, trial.baseline) for trial in plan.trials}
    planned = plan.planned
    found = {}
    for run, baseline in sorted(pairs, key=lambda pair: (pair[1] or "", pair[0])):
        other = records[baseline].losses if baseline else {}
        try:
            gaps = recorded_gaps(records[run].losses, other, planned)
        except UserError as error:
            found[run, baseline] = _Gaps({}, str(error))
            continue
        columns: dict[str, float] = {}
        for name, gap in gaps.items():
            ends = {name + LOW: gap.low, name + HIGH: gap.high}
            columns |= {name: gap.mean, **ends, name + COUNT: gap.n, name + KEPT: gap.kept}
        done = records[run].state is RunState.COMPLETED
        state = records[baseline].state if baseline and done else None
        found[run, baseline] = _Gaps(columns, NO_RESULT.get(state, "") if state else "")
    return found


def _metric_names(plan: StoredPlan, records: dict[str, Record]) -> dict[tuple[str, str], str]:
    """(evaluation signature, metric) -> column.

    One metric of several evaluations is told apart by what differs in their specs: `fd@1k w=2`.
    The planned ones are named as if they were alone, whatever another sweep has measured too.
    """
    planned = plan.planned
    specs: dict[str, Mapping[str, Any]] = {}
    measured_by: dict[str, dict[str, None]] = {}  # metric -> signatures, in order
    for record in records.values():
        for sig, tree in record.evaluations.items():
            specs.setdefault(sig, tree["spec"])
            for metric in numbers(tree):
                measured_by.setdefault(metric, {})[sig] = None
    return {
        (sig, metric): metric + suffix
        for metric, sigs in measured_by.items()
        for sig, suffix in suffixes({sig: specs[sig] for sig in sigs}, planned).items()
    }


def _is_whole(column: pd.Series) -> bool:
    """Whether an axis has whole numbers, which a missing baseline's cell would turn into floats."""
    return pd.api.types.is_float_dtype(column) and bool((column.dropna() % 1 == 0).all())
