"""One row per trial: its state, its settings, what was measured, its gaps to the baseline."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import pandas as pd

from tread_lab.compare.gaps import recorded_gaps
from tread_lab.frames.columns import COUNT, HIGH, KEPT, LOW, metric_columns, plain
from tread_lab.frames.reading import Record, Records, numbers
from tread_lab.records.history import left_cells
from tread_lab.records.lab import Lab
from tread_lab.records.metric_names import parameters
from tread_lab.records.plan import StoredPlan
from tread_lab.records.provenance import mixed_runs
from tread_lab.records.status import RunState
from tread_lab.records.sweep_folder import SweepFolder
from tread_lab.specs.cell import SharedParts, Tree, Trial
from tread_lab.specs.errors import UserError
from tread_lab.specs.evaluation_text import MetricNames
from tread_lab.specs.labels import cell_label

Column = tuple[str, str, bool]  # a metric, the column that it has, whether the plan asked for it

FIRST = ("run", "role", "seed", "state", "reason", "mixed", "baseline", "cell")
ENDING = ("state", "reason", "steps_done")
WHOLE = ("start", "end", "steps_done")
RECIPE = ("lr", "batch", "steps")  # of `train`, in every frame, swept or not
NO_RESULT = {  # state of a baseline that ended -> what it means for its trials
    state: f"its baseline {state.lacks_result}: there is nothing to compare with"
    for state in RunState
    if state.lacks_result
}


def trials_frame(lab: Lab, sweep: str | SweepFolder) -> pd.DataFrame:
    """One row per trial of the plan, in plan order.

    Columns: run, role, seed, state, reason, mixed (whether its code, data or weights are not those
    of most runs), baseline (the run it is compared with), cell (its
    label), the axis values, `train.lr`, `train.batch` and `train.steps`, the parameters of
    `names.parameters`, steps_done, metrics of the evaluations, gaps (`gap/heldout`, with `:low`
    and `:high`, `:n` images and `:kept`, the share of variance that pairing left) and costs. Metric
    columns are those with `/` or `@` in their name. **Only completed runs have numbers**: any other
    trial is a row with its state and NaN. Gaps of losses that another sweep has measured are there
    only if every completed run has such losses.

    A completed trial whose baseline ended without a result has that as its reason.

    Where a sweep has baselines of several kinds, each has the axis values in which they differ.

    `frame.attrs["evaluations"]` lists the signatures of the planned evaluations.
    `frame.attrs["devices"]` says how many devices trained a run, where they were several.
    `frame.attrs["axes"]` lists the axis columns, `frame.attrs["planned"]` those of the evaluations
    that this sweep asked for, `frame.attrs["foreign"]` those of others. `frame.attrs["comparison"]`
    says which question differences to baselines answer, such as `at equal training FLOPs`.
    """
    return plan_frame(lab, sweep_plan(lab, sweep))


def sweep_plan(lab: Lab, sweep: str | SweepFolder) -> StoredPlan:
    """Return the stored plan of a sweep, or of its folder."""
    return (lab.known_sweep(sweep) if isinstance(sweep, str) else sweep).plan()


def plan_frame(lab: Lab, plan: StoredPlan) -> pd.DataFrame:
    """`trials_frame` of a plan that was read already: a search's plan grows between readings."""
    return SweepReader(lab, plan).whole_frame()


@dataclass(frozen=True)
class _Result:
    """What is measured of a run beside its baseline.

    Attributes:
        problem: why the losses of the two cannot be paired.
        reason: the problem, what a baseline without a result means, or how the run ended.
        numbers: metrics, gaps with the ends of their intervals, and costs by column.
    """

    record: Record
    problem: str
    reason: str
    numbers: dict[str, float]


class SweepReader:
    """Reads the trials of a plan into rows, one by one, and makes a frame of rows.

    Attributes:
        plan: the plan, its baselines with the axis values that tell them apart.
        names: the names of metrics under this plan.
    """

    def __init__(self, lab: Lab, plan: StoredPlan) -> None:
        self._lab = lab
        self.plan, self._left = plan.with_baseline_cells, left_cells(lab, plan)
        self.names = MetricNames(plan.evaluation_defaults)
        self._trials = {trial.run: trial for trial in self.plan.trials}
        self._records, self._planned = Records(lab, plan), plan.planned
        self._parts = SharedParts()
        self._results: dict[tuple[str, str], _Result] = {}  # by baseline and run
        self._columns: dict[Column, None] = {}  # those met so far

    @cached_property
    def _mixed(self) -> set[str]:
        """The runs that are no fair part of one comparison."""
        return mixed_runs(self._lab, self._trials)

    def row(self, trial: Trial[Tree]) -> dict[str, Any]:
        """Return the row of a trial in `trials_frame`, without the columns of which it has none.

        Raises:
            UserError: an evaluation of the run cannot be understood.
        """
        result = self._result(trial)
        return {**self._settings(trial), **dict(zip(ENDING, _ending(result))), **result.numbers}

    def devices(self, trial: Trial[Tree]) -> int:
        """Return how many devices trained a trial together."""
        return self._records[trial.run].devices

    def measured_at(self, trial: Trial[Tree]) -> dict[int, dict[str, float]]:
        """Return what was measured of a trial before its end: by step, metrics and gaps.

        The names are those of the end. A gap is that to the baseline at the same step, which may be
        its end; there is none where runs differ in length and an earlier step is no shorter run.

        Raises:
            UserError: an evaluation of the run cannot be understood.
        """
        record = self._records[trial.run]
        dense = self._dense_losses(trial)
        values = {}
        for step, evaluations in record.at_steps.items():
            gaps, _ = self._gaps(record.losses_at.get(step, {}), dense.get(step, {}))
            metrics, columns = self._metrics(evaluations)
            self._columns |= columns
            values[step] = {**metrics, **gaps}
        return values

    def _dense_losses(self, trial: Trial[Tree]) -> Mapping[int, dict[str, Path]]:
        """Return the files of losses of a trial's baseline by the steps at which both compare."""
        if trial.baseline is None:
            return {}
        baseline, record = self._trials[trial.baseline], self._records[trial.baseline]
        if baseline.steps == trial.steps:
            return record.losses_at
        if any(map(self.plan.follows_length, (trial, baseline))):
            return {}
        return {**record.losses_at, baseline.steps: record.losses}

    def problem(self, trial: Trial[Tree]) -> str:
        """Return what is wrong with the losses of a trial or of its baseline; "" if nothing is."""
        return self._result(trial).problem

    def parameters(self, trial: Trial[Tree]) -> dict[str, Any]:
        """Return `metric_names.parameters` of a trial's run."""
        return parameters(self._parts.run(trial.spec))

    def _settings(self, trial: Trial[Tree]) -> dict[str, Any]:
        """Return what the plan alone says of a trial."""
        return {
            "run": trial.run,
            "role": trial.role,
            "seed": trial.seed,
            "mixed": trial.run in self._mixed,
            "baseline": trial.baseline,
            "cell": cell_label(trial),
            **{f"train.{name}": trial.spec["train"].get(name) for name in RECIPE},
            **self._cell(trial),
        }

    def _cell(self, trial: Trial[Tree]) -> dict[str, Any]:
        """Return axis values and parameters, one name each.

        A rate of 0, and a dense run that goes on from another, have their axes' place.
        """
        axes = {axis: plain(value) for axis, value in trial.cell.items()}
        own = {k: None if value == "" else value for k, value in self.parameters(trial).items()}
        places = {name for name in ("start", "end") if isinstance(axes.get(name), int)}
        places |= axes.keys() & {"rate"} if own["starts_from"] else set()
        dense = own["start"] is None
        return axes | own | ({name: axes[name] for name in places} if dense else {})

    def whole_frame(self) -> pd.DataFrame:
        """Return the rows of all trials as a frame."""
        self.read_gaps()
        return self.frame([self.row(trial) for trial in self.plan.trials])

    def frame(self, rows: Sequence[Mapping[str, Any]]) -> pd.DataFrame:
        """Return rows as a frame."""
        return self._finished(pd.DataFrame(rows))

    def _finished(self, frame: pd.DataFrame) -> pd.DataFrame:
        """Return a frame with its columns in order, whole numbers whole, its `attrs` set."""
        axes = self.plan.axes
        if not self._compares_losses:
            frame = frame[[c for c in frame if not str(c).startswith("gap/")]]
        metrics = metric_columns(frame)
        settings = frame.columns.drop([*FIRST, *metrics], errors="ignore")
        frame = frame.reindex(columns=[*dict.fromkeys([*FIRST, *axes, *settings]), *metrics])
        whole = [*(axis for axis in axes if _is_whole(frame[axis])), *WHOLE]
        types: dict[str, Any] = {**dict.fromkeys(metrics, float), **dict.fromkeys(whole, "Int64")}
        frame = frame.astype({column: kind for column, kind in types.items() if column in frame})
        columns: dict[str, dict[str, bool]] = {}  # metric -> column -> whether planned
        for metric, column, is_planned in self._columns:
            own = columns.setdefault(metric, {})
            own[column] = own.get(column, False) or is_planned
        pairs = [pair for own in columns.values() for pair in own.items()]
        planned, foreign = ([c for c, own in pairs if own is kind] for kind in (True, False))
        frame.attrs |= {"axes": list(axes), "planned": planned, "foreign": foreign}
        frame.attrs["evaluations"] = sorted(self._planned)
        counts = {trial.run: self.devices(trial) for trial in self.plan.trials}
        frame.attrs["devices"] = _Shared({run: n for run, n in counts.items() if n > 1})
        frame.attrs["comparison"] = self.plan.comparison
        frame.attrs["left"] = self._left
        return frame

    @property
    def _compares_losses(self) -> bool:
        """Whether the plan asks for held-out losses, or every completed run has some."""
        if any(tree["kind"] == "heldout_loss" for tree in self.plan.evaluate):
            return True
        records = (self._records[trial.run] for trial in self.plan.trials)
        return all(r.losses or r.losses_at for r in records if r.state is RunState.COMPLETED)

    def read_gaps(self) -> None:
        """Read the gaps of all trials in order of baselines, so that each baseline is read once."""
        for trial in sorted(self.plan.trials, key=lambda trial: trial.baseline or ""):
            self._result(trial)

    def _result(self, trial: Trial[Tree]) -> _Result:
        """Return what is measured of a trial, read once.

        Raises:
            UserError: an evaluation of the run cannot be understood.
        """
        pair = trial.baseline or "", trial.run
        if pair not in self._results:
            baseline = self._records[trial.baseline] if trial.baseline else None
            self._results[pair] = self._measured(self._records[trial.run], baseline)
        return self._results[pair]

    def _measured(self, record: Record, baseline: Record | None) -> _Result:
        metrics, columns = self._metrics(record.evaluations)
        self._columns |= columns
        gaps, problem = self._gaps(record.losses, baseline.losses if baseline else {})
        done = record.state is RunState.COMPLETED
        uncompared = NO_RESULT.get(baseline.state, "") if baseline and done else ""
        reason = problem or uncompared or record.reason
        return _Result(record, problem, reason, metrics | gaps | record.costs)

    def _metrics(
        self, evaluations: Mapping[str, Mapping[str, Any]]
    ) -> tuple[dict[str, float], dict[Column, None]]:
        values: dict[str, float] = {}
        columns: dict[Column, None] = {}
        for evaluation, tree in evaluations.items():
            for metric, value in numbers(tree).items():
                column = self.names.name(metric, evaluation, tree["spec"])
                values.setdefault(column, value)  # of equal images, the planned ones come first
                columns[metric, column, evaluation in self._planned] = None
        return values, columns

    def _gaps(
        self, losses: dict[str, Path], baseline: dict[str, Path]
    ) -> tuple[dict[str, float], str]:
        """Return gaps as columns, an interval's ends beside each, or why they are unreadable."""
        try:
            gaps = recorded_gaps(losses, baseline, self._planned)
        except UserError as error:
            return {}, str(error)
        columns: dict[str, float] = {}
        for name, gap in gaps.items():
            ends = {name + LOW: gap.low, name + HIGH: gap.high}
            columns |= {name: gap.mean, **ends, name + COUNT: gap.n, name + KEPT: gap.kept}
        return columns, ""


class _Shared(dict[str, int]):
    """A mapping that frames made of a frame share; pandas copies each other value deeply."""

    def __deepcopy__(self, memo: dict[int, Any]) -> _Shared:
        return self


def _ending(result: _Result) -> tuple[Any, ...]:
    """Return the values of `ENDING`."""
    return result.record.state, result.reason, result.record.steps


def _is_whole(column: pd.Series) -> bool:
    """Whether an axis has whole numbers, which a missing baseline's cell would turn into floats."""
    return pd.api.types.is_float_dtype(column) and bool((column.dropna() % 1 == 0).all())
