"""From records to rows: one per trial, or per trial and step, with settings, metrics and gaps."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from tread_lab.config.decode import decode
from tread_lab.config.errors import UserError
from tread_lab.config.evaluation import end_signature
from tread_lab.config.labels import MetricNames, Tree, Trial, cell_label
from tread_lab.config.run import RunSpec, steps_alike
from tread_lab.config.sweep import QUESTIONS
from tread_lab.records.caveats import left_cells, mixed_runs
from tread_lab.records.early_stopping import stopped_early
from tread_lab.records.lab import Lab
from tread_lab.records.metric_names import (
    DEVICE_HOURS,
    GAP_HELDOUT,
    TRAIN_FLOPS,
    TRAIN_IMAGES,
    TRAIN_SECONDS,
    parameters,
)
from tread_lab.records.run_folder import INFLUENCES, RunFolder
from tread_lab.records.run_state import RunState, state_in_sweep, stop_reason
from tread_lab.records.sweep_folder import StoredPlan
from tread_lab.results.cells import (
    COUNT,
    HIGH,
    KEPT,
    LOW,
    NO_RESULT,
    PAIRED,
    disturbed,
    is_metric,
    metric_columns,
    plain,
)
from tread_lab.results.gaps import difference_errors, recorded_gaps
from tread_lab.results.intervals import half_width, t_interval

FIRST = ("run", "role", "seed", "state", "reason", "mixed", "disturbed", "baseline", "cell")
WHOLE = ("start", "end", "steps_done")
RECIPE = ("lr", "batch", "steps")  # of `train`, in every frame, swept or not
STEP = "step"  # the column, and an axis of `steps_frame`
END = 0  # stands for the step at which a run ends


@dataclass(frozen=True)
class Record:
    """The record of one run; only completed runs have numbers.

    Attributes:
        steps: last step of the run.
        devices: number of devices of the run.
        evaluations: by step, `END` first; those of the plan first.
        losses: files of held-out losses by step and signature, in the same order.
        influences: files of influences on Frechet distances, in the same order.
    """

    state: RunState
    reason: str = ""
    steps: int | None = None
    devices: int = 1
    costs: dict[str, float] = field(default_factory=dict)
    evaluations: dict[int, dict[str, dict[str, Any]]] = field(default_factory=lambda: {END: {}})
    losses: dict[int, dict[str, Path]] = field(default_factory=lambda: {END: {}})
    influences: dict[int, dict[str, Path]] = field(default_factory=lambda: {END: {}})

    @staticmethod
    def read(run: RunFolder, planned: list[str], stopped: Mapping[str, int]) -> Record:
        """Return the record of a run, given the runs that its sweep has `stopped` early."""
        result = run.result() if run.path.is_dir() else None
        if result is None:
            state = run.state() if run.path.is_dir() else RunState.PENDING
            if state_in_sweep(state, run.name, stopped) is not state:
                step = stopped[run.name]
                return Record(RunState.STOPPED, stop_reason(step), step)
            return Record(state)
        state, reason, steps = result["state"], result.get("reason", ""), result.get("step")
        if state is not RunState.COMPLETED:
            return Record(state, reason, steps)
        costs = {name: float(cost) for name, cost in result.get("metrics", {}).items()}
        record = Record(state, reason, steps, result.get("devices", 1), costs)
        if TRAIN_SECONDS in costs:
            costs[DEVICE_HOURS] = record.devices * costs[TRAIN_SECONDS] / 3600
        place = {name: number for number, name in enumerate(planned)}
        found = sorted(_evaluations(run), key=lambda one: place.get(one[1], len(place)))
        problems = []
        for step, name, tree, folder in sorted(found, key=lambda one: one[0]):
            record.evaluations.setdefault(step, {})[name] = tree
            is_loss = tree["spec"].get("kind") == "heldout_loss"
            if is_loss:
                record.losses.setdefault(step, {})[name] = folder / "losses.npz"
            if "standard_errors" in tree:
                record.influences.setdefault(step, {})[name] = folder / INFLUENCES
            if "problem" in tree and (name in place or is_loss):  # all sweeps compare losses
                problems.append(tree["problem"])
        return Record(**{**vars(record), "reason": problems[0]}) if problems else record


def _evaluations(run: RunFolder) -> Iterator[tuple[int, str, dict[str, Any], Path]]:
    """Yield step, signature, tree and folder of each finished evaluation of a run."""
    for place in run.evaluations():
        if (tree := place.read()) is not None:
            step = int(tree["spec"].get("step") or END)
            own = place.path.name if step == END else end_signature(tree["spec"])
            yield step, own, tree, place.path


NOTHING = Record(RunState.PENDING)  # what is known of a baseline that a run does not have


class SweepReader:
    """Reads the trials of a plan into rows.

    Attributes:
        plan: the plan; baselines have the axis values that distinguish them.
        names: metric names under this plan.
    """

    @staticmethod
    def of(lab: Lab, sweep: str) -> SweepReader:
        """Return the reader of a stored sweep.

        Raises:
            UserError: no such sweep.
        """
        return SweepReader(lab, lab.known_sweep(sweep).plan())

    def __init__(self, lab: Lab, plan: StoredPlan) -> None:
        self.plan, self._left = plan.with_baseline_cells, left_cells(lab, plan)
        self.names = MetricNames(plan.evaluation_defaults)
        self._trials = {trial.run: trial for trial in self.plan.trials}
        self._planned, stopped = plan.planned, stopped_early(lab, plan)
        self._records = {
            run: Record.read(lab.run(run), self._planned, stopped) for run in self._trials
        }
        self._mixed = mixed_runs(lab, self._trials)
        self._columns: dict[str, bool] = {}  # of metrics met so far -> whether planned

    @cached_property
    def rows(self) -> list[dict[str, Any]]:
        """The row of each trial in `trials_frame`, without missing columns.

        Raises:
            UserError: an invalid record of an evaluation.
        """
        return [*map(self._row, self.plan.trials)]

    def trials(self) -> pd.DataFrame:
        """Return `trials_frame`."""
        return self.frame(self.rows)

    def steps(self) -> pd.DataFrame:
        """Return one row per trial and evaluated step, the end last, in plan order.

        The columns are those of `trials_frame` and the axis `step`. Metrics are of the EMA weights
        at the step, under the names of the end; gaps are to the baseline at the same step.
        `cost/train_flops`, `cost/train_seconds`, `cost/device_hours` and `cost/train_images` count
        up to the step; if routes are active in some steps only, time and FLOPs are known at the end
        only. Incomplete trials have one row without a step. `frame.attrs["schedules"]` lists
        decaying learning-rate schedules, under which a checkpoint differs from a shorter run.
        """
        frame = self.frame(row for one in self._pairs for row in self.rows_by_step(*one))
        frame[STEP] = frame[STEP].astype("Int64")
        schedules = {str(trial.spec["train"].get("schedule")) for trial in self.plan.trials}
        frame.attrs |= {
            "axes": [*frame.attrs["axes"], STEP],
            "schedules": sorted(schedules - {"constant"}),
        }
        return frame

    def equal_steps(self) -> pd.DataFrame | None:
        """Return the rows of `trials_frame`, each run at the last step of its baseline.

        The equal-steps view of a sweep with `match`, from the same runs. `None` for other sweeps,
        without such evaluations, or if checkpoints differ from shorter runs.
        `frame.attrs["at_step"]` has the step of each run that continues.
        """
        if self.plan.match is None:
            return None
        ends = {trial.run: trial.steps for trial in self.plan.trials}
        at_step = {trial.run: ends[trial.baseline or trial.run] for trial in self.plan.trials}
        frame = self.frame(self._row_at(*one, at_step[one[0].run]) for one in self._pairs)
        before = {run: step for run, step in at_step.items() if step != ends[run]}
        frame.attrs |= {"comparison": QUESTIONS[None], "at_step": before}
        trials = frame[frame["role"] == "trial"]
        return frame if GAP_HELDOUT in frame and trials[GAP_HELDOUT].notna().any() else None

    def training(self) -> pd.DataFrame:
        """Return the rows of curves over training: checkpoints, or runs of several lengths.

        The rows of `steps` if a run was evaluated before its end, else those of `trials_frame`.
        Steps at which only baselines of a matched sweep end do not count.
        """
        stages = {tree.get("step") for tree in self.plan.evaluate} - {None}
        if self.plan.match is not None and stages <= {trial.steps for trial in self.plan.trials}:
            return self.trials()
        steps = self.steps()
        several = (steps.groupby("run")[STEP].nunique() > 1).any()
        return steps if several else self.trials()

    @property
    def _pairs(self) -> Iterator[tuple[Trial[Tree], dict[str, Any]]]:
        """Each trial with its row."""
        return zip(self.plan.trials, self.rows)

    def _row(self, trial: Trial[Tree]) -> dict[str, Any]:
        record = self._records[trial.run]
        dense = self._records.get(trial.baseline or "", NOTHING)
        values, problem = self._measured(record, END, dense, END)
        uncompared = ""
        if record.state is RunState.COMPLETED:
            uncompared = NO_RESULT.get(dense.state, "")
        return {
            **self._settings(trial),
            "state": record.state,
            "reason": problem or uncompared or record.reason,
            "steps_done": record.steps,
            **values,
            **record.costs,
        }

    def measured_at(self, trial: Trial[Tree]) -> dict[int, dict[str, float]]:
        """Return metrics and gaps of a trial before its end, by step.

        Names are those of the end. Gaps are to the baseline at the same step, which can be its end;
        none if runs differ in length and checkpoints differ from shorter runs.
        """
        record, baseline = self._records[trial.run], self._trials.get(trial.baseline or "")
        ends, alike = dict[int, int](), baseline is not None and baseline.steps == trial.steps
        if baseline and not alike:
            alike = not any(map(self.plan.follows_length, (trial, baseline)))
            ends = {baseline.steps: END}
        dense = self._records[baseline.run] if baseline and alike else NOTHING
        steps = (step for step in record.evaluations if step != END)
        return {at: self._measured(record, at, dense, ends.get(at, at))[0] for at in steps}

    def rows_by_step(
        self, trial: Trial[Tree], whole: Mapping[str, Any]
    ) -> Iterator[dict[str, Any]]:
        """Yield the row of a trial at every evaluated step, the end last."""
        if whole["state"] is not RunState.COMPLETED:
            yield {**whole, STEP: None}
            return
        steps, alike = trial.steps, steps_alike(trial.spec)
        settings = {name: x for name, x in whole.items() if not is_metric(name)}
        at_end = {name: x for name, x in whole.items() if name not in settings}
        for step, values in {**self.measured_at(trial), steps: at_end}.items():
            known = (TRAIN_FLOPS, TRAIN_SECONDS, DEVICE_HOURS) if alike or step == steps else ()
            share = step / max(steps, 1)
            cost = {name: share * at_end[name] for name in known if name in at_end}
            cost[TRAIN_IMAGES] = float(step * trial.spec["train"]["batch"])
            label = f"{whole['cell']} {STEP}={step}"
            yield {**settings, "cell": label, STEP: step, **values, **cost}

    def _row_at(self, trial: Trial[Tree], whole: Mapping[str, Any], step: int) -> dict[str, Any]:
        """Return the row of a trial at one step; without numbers where it was not measured."""
        settings = {name: x for name, x in whole.items() if not is_metric(name)}
        rows = (row for row in self.rows_by_step(trial, whole) if row[STEP] == step)
        return {name: x for name, x in {**next(rows, {}), **settings}.items() if name != STEP}

    def frame(self, rows: Iterable[Mapping[str, Any]]) -> pd.DataFrame:
        """Return rows as a frame with ordered columns, integers and `attrs`."""
        frame = pd.DataFrame([*rows])
        axes = self.plan.axes
        if not self._compares_losses:
            frame = frame[[c for c in frame if not str(c).startswith("gap/")]]
        metrics = metric_columns(frame)
        settings = frame.columns.drop([*FIRST, *metrics], errors="ignore")
        frame = frame.reindex(columns=[*dict.fromkeys([*FIRST, *axes, *settings]), *metrics])
        whole = [*(axis for axis in axes if _is_whole(frame[axis])), *WHOLE]
        types: dict[str, Any] = {**dict.fromkeys(metrics, float), **dict.fromkeys(whole, "Int64")}
        frame = frame.astype({column: kind for column, kind in types.items() if column in frame})
        frame["disturbed"] = False if STEP in frame else disturbed(frame)
        frame.attrs |= {
            "axes": list(axes),
            "planned": [column for column, planned in self._columns.items() if planned],
            "foreign": [column for column, planned in self._columns.items() if not planned],
            "evaluations": sorted(self._planned),
            "comparison": self.plan.comparison,
            "margin": self.plan.sweep_file.get("margin"),
            "left": self._left,
        }
        return frame

    def _settings(self, trial: Trial[Tree]) -> dict[str, Any]:
        """Return what the plan alone says of a trial: axis values and parameters, one name each.

        A rate of 0, and a dense run that goes on from another, have their axes' place.
        """
        axes = {axis: plain(value) for axis, value in trial.cell.items()}
        named = parameters(decode(RunSpec, trial.spec))
        own = {name: None if value == "" else value for name, value in named.items()}
        places = {name for name in ("start", "end") if isinstance(axes.get(name), int)}
        places |= axes.keys() & {"rate"} if own["starts_from"] else set()
        dense = own["start"] is None
        return {
            "run": trial.run,
            "role": trial.role,
            "seed": trial.seed,
            "mixed": trial.run in self._mixed,
            "baseline": trial.baseline,
            "cell": cell_label(trial),
            **{f"train.{name}": trial.spec["train"].get(name) for name in RECIPE},
            **axes,
            **own,
            **({name: axes[name] for name in places} if dense else {}),
        }

    def _measured(
        self, record: Record, step: int, dense: Record, at: int
    ) -> tuple[dict[str, float], str]:
        """Return the metrics of a step and its gaps to a step of the baseline, or why these are
        unreadable."""
        values: dict[str, float] = {}
        for signature, tree in record.evaluations[step].items():
            costs = {name: x for name, x in tree.items() if name.startswith("cost/")}
            errors, apart = tree.get("standard_errors", {}), dict[str, float]()
            theirs = dense.influences.get(at, {}).get(signature)
            baseline = dense.evaluations.get(at, {}).get(signature, {})
            if errors and theirs:
                apart = difference_errors(record.influences[step][signature], theirs)
            for metric, value in {**tree["metrics"], **costs}.items():
                column = self.names.name(metric, signature, tree["spec"])
                if column not in values:  # of equal images, the planned ones come first
                    values[column] = value
                    for end, x in _over_sets(metric, tree, baseline).items():
                        values[column + end] = x
                    if metric in errors:
                        n = int(tree["spec"]["count"])
                        half = float(half_width(errors[metric] * n**0.5, n))
                        values |= {column + LOW: value - half, column + HIGH: value + half}
                        values[column + COUNT] = n
                        if metric in apart:
                            values[column + PAIRED] = float(half_width(apart[metric] * n**0.5, n))
                planned = signature in self._planned
                self._columns[column] = self._columns.get(column, False) or planned
        try:
            paths = record.losses.get(step, {}), dense.losses.get(at, {})
            gaps = recorded_gaps(*paths, self._planned)
        except UserError as error:
            return values, str(error)
        for name, gap in gaps.items():
            values |= {name: gap.mean, name + LOW: gap.low, name + HIGH: gap.high}
            values |= {name + COUNT: gap.n, name + KEPT: gap.kept}
        return values, ""

    @property
    def _compares_losses(self) -> bool:
        """Whether the plan asks for held-out losses, or every completed run has some."""
        if any(tree["kind"] == "heldout_loss" for tree in self.plan.evaluate):
            return True
        done = (r for r in self._records.values() if r.state is RunState.COMPLETED)
        return all(any(record.losses.values()) for record in done)


def _over_sets(metric: str, tree: Tree, baseline: Tree) -> dict[str, float]:
    """Return the interval of a mean over sets of images and, as sets have equal seeds, half of that
    of the difference to the baseline; empty for one set."""
    own, theirs = (np.array(one.get("sets", {}).get(metric, ())) for one in (tree, baseline))
    if not len(own):
        return {}
    _, low, high = t_interval(own)
    ends = {LOW: low, HIGH: high, COUNT: len(own) * tree["spec"]["count"]}
    if len(theirs):
        mean, _, high = t_interval(own - theirs)
        ends[PAIRED] = high - mean
    return ends


def trials_frame(lab: Lab, sweep: str) -> pd.DataFrame:
    """One row per trial of the plan, in plan order.

    Columns: run, role, seed, state, reason, mixed (whether code, data or weights differ from most
    runs), disturbed (whether its times were disturbed), baseline (the run it is compared with),
    cell (its label), the axis values, those of `train` in `RECIPE`, the parameters of
    `metric_names.parameters`, steps_done, metrics of the evaluations, gaps (`gap/heldout`, with
    `:low` and `:high`, `:n` images and `:kept`, the share of variance that pairing left) and costs.
    Frechet distances of enough images and metrics over image sets have `:low`, `:high` and `:n`
    over sampled images, and `:paired`, the half-width of the interval of their difference to the
    baseline. Metric columns are those with `/` or `@` in their name. **Only completed runs have
    numbers**: other trials have their state and NaN. Gaps measured by another sweep are included
    only if every completed run has them.

    A completed trial whose baseline ended without a result has that as its reason.

    Baselines of several kinds have the axis values in which they differ.

    `frame.attrs`: `evaluations` (signatures of the planned evaluations), `axes` (axis columns),
    `planned` and `foreign` (metric columns that this sweep asked for, and others), `comparison`
    (what was held equal, such as `at equal training FLOPs`), `margin` (of equivalence) and `left`
    (cells that have left the file).

    Raises:
        UserError: no such sweep.
    """
    return SweepReader.of(lab, sweep).trials()


def _is_whole(column: pd.Series) -> bool:
    """Whether an axis has whole numbers, which a missing baseline's cell would turn into floats."""
    return pd.api.types.is_float_dtype(column) and bool((column.dropna() % 1 == 0).all())
