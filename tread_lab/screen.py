"""What people see in the terminal: the plan, live progress, rankings and states."""

from __future__ import annotations

import json
import math
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pandas as pd
from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeElapsedColumn
from rich.table import Table

from tread_lab.engine.cost import cost
from tread_lab.frames import setting_names, trials_frame
from tread_lab.records import names
from tread_lab.records.layout import Lab, RunFolder, SweepFolder
from tread_lab.spec.evaluation import SamplesSpec
from tread_lab.spec.run import RunSpec
from tread_lab.spec.signature import signature
from tread_lab.sweep.estimate import Estimate
from tread_lab.sweep.plan import Plan, load_plan
from tread_lab.sweep.trial import Report, Task

Watch = Callable[[Report], None]
_WIDE = 6  # a table with more columns of results is turned on its side
_ROWS = 40  # longer tables show their head and count the rest
_QUIET_SECONDS = 20.0  # between two lines of progress where there is no terminal
_width = None if sys.stderr.isatty() else 160  # a log file has room
_out = Console(stderr=True, highlight=False, soft_wrap=True, width=_width)


def say(text: str) -> None:
    """One line for people, apart from what scripts read on stdout."""
    _out.print(text, markup=False)


def show_plan(plan: Plan, lab: Lab, estimate: Estimate, lanes: int) -> None:
    """What will run, what is left out and why, what it will cost."""
    tasks, spec = plan.tasks, plan.trials[0].spec
    baselines = sum(trial.role == "baseline" for trial in plan.trials)
    say(f"{plan.name}: {plan.question}" if plan.question else plan.name)
    cells = {trial.run: trial.cell for trial in plan.trials}
    axes = _further_axes(axis for cell in cells.values() for axis in cell)
    axes += ["starts_from"] if any(task.spec.init_from for task in tasks) else []
    titles = (axis.rpartition(".")[2].replace("_", " ") for axis in axes)
    columns = ("run", "route", "rate", *titles, "seed", "speed-up", "train FLOPs", "state")
    table = Table(*columns, box=None)
    for task in tasks[:_ROWS]:
        about, price = names.parameters(task.spec), cost(task.spec)
        about = {**cells.get(lab.run_of(task.spec).name, {}), **about}
        settings = [str(about.get(axis, "")) for axis in axes]
        row = [about["route"], about["selection_rate"], *settings, about["seed"]]
        row.append(f"{price.speedup:.2f}x")
        state = lab.run_of(task.spec).state()
        flops = f"{price.train_flops:.2e}"
        table.add_row(lab.run_of(task.spec).name, *map(str, row), flops, state)
    _out.print(table)
    if len(tasks) > _ROWS:
        say(f"... and {len(tasks) - _ROWS} more")
    for hole in plan.holes:
        examples = "; ".join(_cell(cell) for cell in hole.examples[:2])
        say(f"{hole.count} cells left out by {hole.reason} (e.g. {examples})")
    samplings = setting_names([e for e in plan.evaluations if isinstance(e, SamplesSpec)])
    if len(samplings) > 2:
        say(f"every run is sampled {len(samplings)} ways: {'; '.join(samplings)}")
    shape = f"{spec.train.steps} steps of {spec.train.batch}"
    parents = len(tasks) - len({trial.run for trial in plan.trials})
    say(
        f"{len(tasks)} runs of {plan.experiment}, {spec.model.name} on {spec.data.source}, {shape}:"
        f" {baselines} baseline, {len(plan.trials) - baselines} trials"
        + (f", {parents} parents that others start from" if parents else "")
    )
    say(
        f"{plan.train_flops:.2e} training FLOPs, {_bytes(plan.disk_bytes)} of checkpoints at most;"
        f" {_estimate(estimate, lanes)}"
    )


def _further_axes(axes: Iterable[str]) -> list[str]:
    """Axes that the columns `route` and `rate` do not show, each once."""
    shown = ("start", "end", "route", "routes", "rate")
    return [axis for axis in dict.fromkeys(axes) if axis not in shown]


def _estimate(estimate: Estimate, lanes: int) -> str:
    if estimate.open_runs == 0:
        return "everything is done"
    runs = f"{estimate.open_runs} runs open, {lanes} at once"
    if estimate.seconds is None:
        return f"{runs}; time not predicted (a trial step would take long on this device)"
    return f"{runs}: about {_duration(estimate.seconds)}"


@contextmanager
def progress(plan: Plan, lab: Lab, todo: Sequence[Task], lanes: int) -> Iterator[Watch]:
    """Live progress of a sweep: a bar and the running trials, or a line now and then."""
    labels = {lab.run_of(task.spec).name: _label(task.spec) for task in plan.tasks}
    board = _Board({lab.run_of(task.spec).name: task for task in todo}, labels)
    with _bars(board) if _out.is_terminal else _lines(board) as refresh:

        def watch(report: Report) -> None:
            board.note(report)
            refresh(report)

        yield watch


@contextmanager
def run_progress(todo: Sequence[Task]) -> Iterator[Watch]:
    """Live progress of one run and of those it starts from."""
    tasks = {signature(task.spec): task for task in todo}
    board = _Board(tasks, {name: _label(task.spec) for name, task in tasks.items()})
    with _bars(board) if _out.is_terminal else _lines(board) as refresh:

        def watch(report: Report) -> None:
            board.note(report)
            refresh(report)

        yield watch


class _Board:
    """How far the open tasks are, in training FLOPs."""

    def __init__(self, tasks: Mapping[str, Task], labels: Mapping[str, str]) -> None:
        self.labels = labels
        self.work = {name: cost(task.spec).train_flops for name, task in tasks.items()}
        self.share = dict.fromkeys(tasks, 0.0)
        self.reports: dict[str, Report] = {}
        self.first: dict[str, float] = {}
        self.started = time.monotonic()

    def note(self, report: Report) -> None:
        before = self.reports.get(report.run)
        if report.overflows and not (before and before.overflows):
            say(f"{self.labels[report.run]}: a step overflowed in fp16 and was skipped")
        self.reports[report.run] = report
        share = 1.0 if _ended(report) else 0.97 * report.step / report.steps
        self.first.setdefault(report.run, share if report.phase == "train" else 0.0)
        self.share[report.run] = share

    def fraction(self) -> float:
        total = sum(self.work.values())
        return sum(self.work[name] * share for name, share in self.share.items()) / total

    def left(self) -> str:
        """Time left at the speed so far; what earlier attempts did is not counted as speed."""
        before = sum(self.work[n] * f for n, f in self.first.items()) / sum(self.work.values())
        done, elapsed = self.fraction() - before, time.monotonic() - self.started
        if done < 0.005 or elapsed < 5:
            return "..."
        return _duration(elapsed * (1 - self.fraction()) / done)

    def counts(self) -> str:
        ended = Counter(r.phase for r in self.reports.values() if _ended(r))
        bad = [f"{count} {state}" for state, count in ended.items() if state != "completed"]
        return ", ".join([f"{ended['completed']}/{len(self.work)} done", *bad])


@contextmanager
def _bars(board: _Board) -> Iterator[Watch]:
    columns = (TextColumn("{task.description}"), BarColumn(), TextColumn("{task.fields[note]}"))
    with Progress(*columns, TimeElapsedColumn(), console=_out, transient=True) as bars:
        overall = bars.add_task("sweep", total=1.0, note="starting workers")
        rows: dict[str, TaskID] = {}

        def refresh(report: Report) -> None:
            note = f"{board.counts()}, {board.left()} left"
            bars.update(overall, completed=board.fraction(), note=note)
            if _ended(report):
                if report.run in rows:
                    bars.remove_task(rows.pop(report.run))
                bars.console.print(_end_line(board, report))
                return
            if report.run not in rows:
                rows[report.run] = bars.add_task(board.labels[report.run], total=1.0, note="")
            note = _phase(report)
            bars.update(rows[report.run], completed=report.step / report.steps, note=note)

        yield refresh


@contextmanager
def _lines(board: _Board) -> Iterator[Watch]:
    spoken = time.monotonic()

    def refresh(report: Report) -> None:
        nonlocal spoken
        if _ended(report):
            say(_end_line(board, report))
        elif time.monotonic() - spoken < _QUIET_SECONDS:
            return
        else:
            say(f"{board.fraction():.0%}, {board.counts()}, about {board.left()} left")
        spoken = time.monotonic()

    yield refresh


def _ended(report: Report) -> bool:
    return report.phase not in ("train", "evaluate")


def _end_line(board: _Board, report: Report) -> str:
    loss = f", training loss {report.loss:.4f}" if math.isfinite(report.loss) else ""
    return f"{board.labels[report.run]}: {report.phase}{loss} ({board.counts()})"


def _phase(report: Report) -> str:
    if report.phase == "evaluate":
        return "measuring"
    loss = f", loss {report.loss:.4f}" if math.isfinite(report.loss) else ""
    return f"step {report.step}/{report.steps}{loss}"


def show_ranking(lab: Lab, name: str, *, as_json: bool) -> pd.DataFrame:
    """The sweep's trials, best first, each with its gap to the baseline and the interval."""
    frame = trials_frame(lab, name)
    if as_json:
        print(frame.to_json(orient="records", indent=1))
        return frame
    shown = [c for c in frame.columns if _ranked(c)]
    if len(shown) > _WIDE:  # what other sweeps asked of the same runs is left out
        shown = [c for c in shown if "@" not in c or c in frame.attrs["planned"]]
    if len(shown) > _WIDE >= frame["run"].nunique():
        _out.print(_by_setting(frame, shown))
        return frame
    ordered = frame.sort_values(shown[0], na_position="last", kind="stable") if shown else frame
    axes = _further_axes(frame.attrs["axes"])
    axes += ["model"] if frame["model"].nunique() > 1 and "model" not in axes else []
    table = Table("route", "rate", *axes, "seed", *map(escape, shown), "state", box=None)
    for column in table.columns:
        column.no_wrap = True
    for _, row in ordered.head(_ROWS).iterrows():
        values = [_value(row, column) for column in shown]
        rate = f"{row['selection_rate']:g}"
        settings = ["" if pd.isna(row[axis]) else str(row[axis]) for axis in axes]
        table.add_row(str(row["route"]), rate, *settings, str(row["seed"]), *values, _ending(row))
    _out.print(table)
    if len(frame) > _ROWS:
        say(f"... and {len(frame) - _ROWS} more")
    if names.GAP_HELDOUT in frame.columns:
        say(f"gap: difference to the baseline, paired; lower is better; ± 95% {_interval(frame)}")
    return frame


def _by_setting(frame: pd.DataFrame, shown: Sequence[str]) -> Table:
    """Metrics as rows and runs as columns: few runs, sampled in many ways, and what that costs."""
    runs = [row for _, row in frame.drop_duplicates("run").iterrows()]
    axes = ["route", *_further_axes(frame.attrs["axes"]), "seed"]
    table = Table("", *(", ".join(str(row[axis]) for axis in axes) for row in runs), box=None)
    table.columns[0].no_wrap = True
    for column in shown:
        values = [_value(row, column) + _price(row, column) for row in runs]
        table.add_row(escape(column), *values)
    return table


def _price(row: pd.Series[Any], column: str) -> str:
    """FLOPs of one image, beside a metric of samples."""
    flops = row.get(" ".join([names.SAMPLE_FLOPS, *column.split(" ")[1:]]), math.nan)
    return f"  {flops / 1e9:.3g} GFLOP" if "@" in column and math.isfinite(flops) else ""


def _ending(row: pd.Series[Any]) -> str:
    if row["state"] == "failed":
        return f"failed: {row['reason']}"[:60]
    return "baseline" if row["role"] == "baseline" else str(row["state"])


def _interval(frame: pd.DataFrame) -> str:
    """What the intervals speak of."""
    count = frame[f"{names.GAP_HELDOUT}:n"].max()
    return f"over {count:.0f} held-out images of one pair of runs (seeds vary more)"


def _ranked(column: str) -> bool:
    """Columns of the ranking: held-out loss, its gap, and the metrics of samples."""
    if ":" in column:
        return False
    return column in (names.HELDOUT_LOSS, names.GAP_HELDOUT, names.GAP_TRAIN) or "@" in column


def _value(row: pd.Series[Any], column: str) -> str:
    if not math.isfinite(row[column]):
        return "-"
    low, high = row.get(f"{column}:low"), row.get(f"{column}:high")
    if low is None or high is None or not math.isfinite(low):
        return f"{row[column]:.4g}"
    return f"{row[column]:+.4f} ± {(high - low) / 2:.4f}"


def show_places(lab: Lab, folder: SweepFolder, figures: Sequence[Path], *, mlflow: bool) -> None:
    """Where to look next."""
    shown = folder.figures if figures or folder.figures.exists() else None
    if shown is not None:
        say(f"figures: {shown}")
    say(f"records: {lab.root / 'runs'}")
    if mlflow:
        say(f"MLflow:  {lab.mlflow_uri} (`tread-lab ui --root {lab.root}` opens it)")


def show_lab(lab: Lab, *, as_json: bool) -> None:
    """Every sweep with its states."""
    rows = {name: _states(lab, load_plan(lab.sweep(name))) for name in lab.sweeps()}
    if as_json:
        print(json.dumps(rows, indent=1))
        return
    if not rows:
        say(f"no sweep in {lab.root}; try `tread-lab sweep route_placement.yaml --plan`")
        return
    table = Table("sweep", "runs", "states", box=None)
    for name, states in rows.items():
        table.add_row(name, str(sum(states.values())), _counts(states))
    _out.print(table)


def show_sweep(lab: Lab, name: str, *, as_json: bool) -> None:
    """The runs of a sweep and where they stand."""
    plan = load_plan(lab.sweep(name))
    states = {task: lab.run_of(task.spec) for task in plan.tasks}
    if as_json:
        rows = [{"run": f.name, "state": f.state(), "step": _step(f)} for f in states.values()]
        print(json.dumps(rows, indent=1))
        return
    say(f"{name}: {_counts(_states(lab, plan))}")
    table = Table("run", "route", "rate", "seed", "state", "step", box=None)
    for task, folder in list(states.items())[:_ROWS]:
        about, steps = names.parameters(task.spec), task.spec.train.steps
        row = [str(about[key]) for key in ("route", "selection_rate", "seed")]
        table.add_row(folder.name, *row, folder.state(), f"{_step(folder)}/{steps}")
    _out.print(table)
    if len(states) > _ROWS:
        say(f"... and {len(states) - _ROWS} more")


def show_run(folder: RunFolder, *, as_json: bool = False) -> None:
    """One run: what it is, where it stands, what was measured."""
    spec, result = folder.spec(), folder.result() or {}
    measured = [e.read() or {} for e in folder.evaluations()]
    if as_json:
        metrics = [e.get("metrics", {}) for e in measured]
        tree = {"run": folder.name, "state": folder.state(), "result": result, "metrics": metrics}
        print(json.dumps(tree, indent=1))
        return
    pairs = [("run", f"{folder.name} ({_label(spec)})"), ("state", folder.state())]
    pairs += [("reason", result["reason"])] if "reason" in result else []
    pairs.append(("step", f"{_step(folder)}/{spec.train.steps}"))
    pairs += [(k, f"{v:.6g}") for e in measured for k, v in e.get("metrics", {}).items()]
    pairs += [(k, f"{v:.6g}") for k, v in result.get("metrics", {}).items()]
    show_pairs([*pairs, ("folder", str(folder.path))])


def show_pairs(pairs: Sequence[tuple[str, str]]) -> None:
    """Names and values, one a line, on stdout."""
    width = max(len(name) for name, _ in pairs)
    for name, value in pairs:
        print(f"{name:<{width}}  {value}")


def metrics_line(metrics: Mapping[str, float]) -> str:
    """`name value, name value`."""
    return ", ".join(f"{name} {value:.6g}" for name, value in metrics.items()) or "drawn"


def _states(lab: Lab, plan: Plan) -> Counter[str]:
    return Counter(lab.run_of(task.spec).state() for task in plan.tasks)


def _counts(states: Counter[str]) -> str:
    return ", ".join(f"{count} {state}" for state, count in states.most_common())


def _step(folder: RunFolder) -> int:
    result = folder.result()
    if result is not None and "step" in result:
        return int(result["step"])
    entries = folder.entries()
    return entries[-1].step if entries else 0


def _label(spec: RunSpec) -> str:
    about = names.parameters(spec)
    parts = [f"{about['route']} at {about['selection_rate']:g}" if spec.routes else "dense"]
    parts += [str(about["bypass"])] if about["bypass"] else []
    parts += [f"loss {about['loss']}"] if about["loss"] else []
    parts += [f"from {str(about['starts_from'])[:6]}"] if spec.init_from else []
    return ", ".join([*parts, f"seed {spec.seed}"])


def _cell(cell: Mapping[str, Any]) -> str:
    return ", ".join(f"{key}={value}" for key, value in cell.items())


def _duration(seconds: float) -> str:
    if seconds < 90:
        return f"{seconds:.0f} s"
    if seconds < 5400:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.1f} h"


def _bytes(count: float) -> str:
    for unit in ("B", "kB", "MB", "GB", "TB"):
        if count < 1000:
            return f"{count:.0f} {unit}"
        count /= 1000
    return f"{count:.0f} PB"
