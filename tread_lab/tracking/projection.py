"""What MLflow shows of a trial, read from its records: a cheap stamp, and all of it when asked."""

from __future__ import annotations

import contextlib
import json
import math
import re
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import pandas as pd

from tread_lab.frames import SweepReader, disturbed_times, is_metric
from tread_lab.records.checksums import digest
from tread_lab.records.durable import modified
from tread_lab.records.lab import Lab
from tread_lab.records.log import Entry, read_entries
from tread_lab.records.plan import StoredPlan
from tread_lab.records.run_folder import RunFolder
from tread_lab.records.status import RunState
from tread_lab.records.sweep_folder import state_in_sweep
from tread_lab.specs.cell import Tree, Trial
from tread_lab.specs.errors import UserError
from tread_lab.specs.fields import dotted
from tread_lab.specs.labels import cell_label
from tread_lab.tracking.artifacts import (
    File,
    has_pictures,
    run_files,
)

PARAMETERS = {  # columns of frames -> parameters, so that stored filters go on finding runs
    "start": "route_start",
    "end": "route_end",
    "length": "route_length",
    "rate": "selection_rate",
}
_SAMPLES = re.compile(r"(?P<metric>[^\[@]+)(?:\[(?P<bracket>[^\]]+)\])?@(?P<count>\d+k?)")


def to_mlflow(name: str) -> str:
    """`fd[fashion16-v1]@1k w=1.5 SG(0.5/0.9)` -> `fd:fashion16-v1:1k w:1.5 SG 0.5/0.9`.

    MLflow accepts letters, digits and `_ - . : /` and the space; a name of these stays as it is.
    Any other character becomes `_`.
    """
    metric, space, setting = name.partition(" ")
    if found := _SAMPLES.fullmatch(metric):
        metric = ":".join(filter(None, found.group("metric", "bracket", "count"))).replace(",", ":")
    setting = re.sub(r"->|,", "-", setting).replace("=", ":")
    setting = re.sub(r"(?<=:)\[|[\])]+", "", setting)
    return re.sub(r"[^\w/.\- :]", "_", metric + space + re.sub(r"[(+]", " ", setting))


TOLD = ("routes", "seed", "execution.", "data.path")  # by the route, the seed, or not science


@dataclass(frozen=True)
class ShownTrial:
    """A trial of a plan as a tracker shows it.

    Attributes:
        key: what tells it from every other one: sweep / role / run / cell.
        stored: the trial, a baseline with the axis values that tell it from others.
        varied: dotted fields, routes and seed apart, in which the runs of the sweep differ.
        label: of the cell, shared by its seeds.
    """

    key: str
    stored: Trial[Tree]
    varied: Mapping[str, Any]
    label: str


def trials_of(sweep: str, plan: StoredPlan) -> list[ShownTrial]:
    """Return the distinct trials of a plan, in its order."""
    fields = [dict(dotted(trial.spec)) for trial in plan.trials]
    seen: dict[str, set[str]] = defaultdict(set)
    for tree in fields:
        for name, value in tree.items():
            seen[name].add(repr(value))
    varied = [n for n, values in seen.items() if len(values) > 1 and not n.startswith(TOLD)]
    trials: dict[str, ShownTrial] = {}
    for planned, stored, values in zip(plan.trials, plan.with_baseline_cells.trials, fields):
        cell = ",".join(f"{name}={value}" for name, value in sorted(planned.cell.items()))
        key = f"{sweep}/{stored.role}/{stored.run}/{cell}"
        own = {name: values[name] for name in varied if name in values}
        trials.setdefault(key, ShownTrial(key, stored, own, cell_label(stored)))
    return list(trials.values())


LONGEST_LABEL = 225  # in the name of a run, of which PostgreSQL takes 250
FORMAT = 5  # of what is shown; another number sends everything once more
STATUS = {
    RunState.RUNNING: "RUNNING",
    RunState.INTERRUPTED: "KILLED",
    RunState.COMPLETED: "FINISHED",
    RunState.STOPPED: "KILLED",
    RunState.FAILED: "FAILED",
    RunState.DIVERGED: "FAILED",
}


@dataclass(frozen=True)
class Number:
    """One metric value; `time` in milliseconds comes from the records, so a replay adds no row."""

    key: str
    value: float
    step: int
    time: int


@dataclass(frozen=True)
class View:
    """Everything that MLflow shows of one trial.

    Attributes:
        settings: parameters, numbers as numbers.
        born: when the log begins, in milliseconds; another log, another number.
        logged: the log's values by sequence number, one per (key, step).
        measured: evaluations and gaps, one value per metric; only of a run that has ended.
        during: those of steps before the end, which make a history of the same metrics.
        files: place among the artifacts -> file or text.
    """

    name: str
    status: str
    started: int
    ended: int | None
    settings: Mapping[str, Any]
    tags: dict[str, str]
    born: int
    logged: Mapping[int, Number]
    measured: Mapping[str, Number]
    during: tuple[Number, ...]
    files: Mapping[str, File]

    @property
    def params(self) -> dict[str, str]:
        """The settings as MLflow keeps them: as texts."""
        return {name: str(value) for name, value in self.settings.items()}


class Projection:
    """Reads the trials of one sweep, each run once."""

    def __init__(self, lab: Lab, plan: StoredPlan) -> None:
        self._lab, self._plan = lab, plan
        self._reader = SweepReader(lab, plan)
        self._baselines: dict[str, list[Any]] = {}
        self._stopped = lab.sweep(plan.name).stopped()

    @cached_property
    def _end(self) -> tuple[str, int]:
        """What the keys of pictures of completed runs add, and the step at which they all stand.

        The image grid shows one step of all runs.
        """
        lengths = {trial.steps for trial in self._plan.trials}
        return "/at_end" if len(lengths) > 1 else "", max(lengths)

    @cached_property
    def frame(self) -> pd.DataFrame:
        """`trials_frame` of the trials, without those whose records cannot be read."""
        rows = []
        for trial in trials_of(self._plan.name, self._plan):
            with contextlib.suppress(UserError):
                rows.append(self._reader.row(trial.stored))
        return self._reader.frame(rows)

    @cached_property
    def _disturbed(self) -> dict[str, list[str]]:
        return disturbed_times(self.frame)

    def state(self, trial: ShownTrial) -> RunState:
        """Return the run's state; one that has no spec yet is pending, whoever holds it."""
        run = self._lab.run(trial.stored.run)
        state = run.state() if (run.path / "spec.yaml").exists() else RunState.PENDING
        return state_in_sweep(state, run.name, self._stopped)

    def stamp(self, trial: ShownTrial, state: RunState) -> str:
        """Return a fingerprint of all that `view` depends on, from names, sizes, times of files."""
        run, baseline = self._lab.run(trial.stored.run), trial.stored.baseline
        facts = [FORMAT, state, trial.key, run_marks(run), repr(trial.varied), trial.label]
        facts += [self._plan.planned, self._plan.comparison, self._end]
        facts.append(self._disturbed.get(trial.stored.run) if state.ended else None)
        if baseline is not None and state.ended:
            if baseline not in self._baselines:
                self._baselines[baseline] = run_marks(self._lab.run(baseline))
            facts.append(self._baselines[baseline])
        return digest(json.dumps(facts))

    def view(self, trial: ShownTrial, state: RunState) -> View:
        """Return all that is shown of a trial; its numbers are those of `trials_frame`.

        Raises:
            UserError: a part of the record cannot be read.
        """
        run, row = self._lab.run(trial.stored.run), self._reader.row(trial.stored)
        values = {name: value for name, value in row.items() if is_metric(name)}
        logged = first_entries(read_entries(run.log_path))
        curves, times = {entry.key for entry in logged}, [entry.time for entry in logged]
        spec_written = (run.path / "spec.yaml").stat().st_mtime
        begun = (run.origin() or [{}])[0].get("started") or spec_written
        started = min([*times[:1], float(begun)])
        last = max(times, default=started)
        result = modified(run.path / "result.json") or last
        step = int(row["steps_done"] or 0)  # which nothing is shown at before a run has ended
        files: dict[str, File] = {"spec.yaml": run.path / "spec.yaml"}
        problem = ""
        if state.ended:
            end, at = self._end if state is RunState.COMPLETED else ("", step)
            time, names = _milliseconds(last), self._reader.names
            files, unread = run_files(run, names, step=at, time=time, end=end)
            problem = self._reader.problem(trial.stored) or unread
        numbers = [
            # Of two values of one step MLflow's tables show the later one: the record's.
            Number(to_mlflow(name), _finite(value), step, _milliseconds(last) + (name in curves))
            for name, value in values.items()
        ]
        return View(
            name=f"{trial.label[:LONGEST_LABEL]} seed {trial.stored.seed}",
            status=STATUS[state],
            started=_milliseconds(started),
            ended=None if state is RunState.RUNNING else _milliseconds(max(last, result)),
            settings=self._params(trial),
            tags=self._tags(trial, run, state=state, problem=problem, files=files),
            born=_milliseconds(times[0]) if times else 0,
            logged={
                e.n: Number(to_mlflow(e.key), _finite(e.value), e.step, _milliseconds(e.time))
                for e in logged
            },
            measured={number.key: number for number in numbers},
            during=tuple(
                Number(to_mlflow(name), _finite(value), at, _milliseconds(last))
                for at, own in self._reader.measured_at(trial.stored).items()
                for name, value in own.items()
            ),
            files=files,
        )

    def _params(self, trial: ShownTrial) -> dict[str, Any]:
        """Return the parameters and the fields that vary; MLflow would plot an empty one at 0."""
        spec = trial.stored.spec
        always = {f"train.{name}": spec["train"][name] for name in ("lr", "batch", "steps")}
        always["selection"] = " + ".join(
            dict.fromkeys(route["selection"] for route in spec["routes"])
        )
        settings = self._reader.parameters(trial.stored)
        own = {PARAMETERS.get(name, name): value for name, value in settings.items()}
        params = {**always, **trial.varied, **own}
        plain = {n: x if isinstance(x, int | float) else str(x) for n, x in params.items()}
        return {name: value for name, value in plain.items() if value != ""}

    def _tags(
        self,
        trial: ShownTrial,
        run: RunFolder,
        *,
        state: RunState,
        problem: str,
        files: Iterable[str],
    ) -> dict[str, str]:
        """Return what people filter and group by; the seeds of a cell share the tag `cell`."""
        attempts = run.origin()
        origin = attempts[-1] if attempts else {}
        code = str(origin.get("code") or "")
        reason = str((run.result() or {}).get("reason") or "")
        if state is RunState.STOPPED and not reason and run.name in self._stopped:
            reason = self._stopped[run.name].reason  # its sweep alone knows
        tags = {
            "cell": trial.label,
            "role": trial.stored.role,
            "compared": self._plan.comparison if trial.stored.baseline else "",
            "state": state,
            "signature": trial.stored.run,
            "code": code,
            "device": str(origin.get("device") or ""),
            "problem": problem,
            "disturbed": ", ".join(map(to_mlflow, self._disturbed.get(trial.stored.run, ()))),
            "attempts": str(len(attempts)) if len(attempts) > 1 else "",
            "mlflow.source.name": f"tread-lab sweep {self._plan.name}",
            "mlflow.source.type": "LOCAL",
            "mlflow.source.git.commit": code.removesuffix("-dirty"),
            "mlflow.loggedImages": "True" if has_pictures(files) else "",
            "reason": reason[:2000],
        }
        return {name: value for name, value in tags.items() if value}


def first_entries(entries: Iterable[Entry]) -> list[Entry]:
    """One entry per (key, step), the first written winning, in the order of writing.

    A resumed run repeats the steps after its last checkpoint. The record takes the last value;
    a view that is written while the run goes on cannot take values back and keeps the first, which
    differs in nothing but speed.
    """
    unique: dict[tuple[str, int], Entry] = {}
    for entry in entries:
        unique.setdefault((entry.key, entry.step), entry)
    return list(unique.values())


def run_marks(run: RunFolder) -> list[Any]:
    """Name, size and time of every file of a record that a view is made from."""
    names = ("spec.yaml", "origin.json", "log.jsonl", "result.json")
    paths = [*(run.path / name for name in names), *run.path.glob("evaluations/*/metrics.json")]
    return sorted(mark for path in paths if (mark := file_mark(path)))


def file_mark(path: Path) -> list[Any]:
    """Return name, size and time of a file, an empty list if it is absent."""
    try:
        facts = path.stat()
    except OSError:
        return []
    return [f"{path.parent.name}/{path.name}", facts.st_size, facts.st_mtime_ns]


def _finite(value: float) -> float:
    """Infinity becomes NaN: MLflow would store 1.8e308, and no curve would be seen beside it."""
    return math.nan if math.isinf(value) else value


def _milliseconds(seconds: float) -> int:
    return round(seconds * 1000)
