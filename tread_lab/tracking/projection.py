"""What MLflow shows of a trial, read from its records: a cheap stamp, and all of it when asked."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tread_lab.compare.gaps import run_gaps
from tread_lab.records import stopped_early
from tread_lab.records.lab import Lab, RunFolder
from tread_lab.records.log import Entry, read_entries
from tread_lab.records.metric_names import parameters
from tread_lab.records.plan import StoredPlan
from tread_lab.records.status import RunState
from tread_lab.records.stopped_early import state_in_sweep
from tread_lab.specs.errors import UserError
from tread_lab.specs.evaluation import EvaluationSpec
from tread_lab.specs.run import RunSpec
from tread_lab.specs.signature import signature
from tread_lab.tracking.artifacts import File, has_pictures, picture_key, run_files
from tread_lab.tracking.mlflow_names import difference, evaluation_spec, to_mlflow
from tread_lab.tracking.trial_names import Trial

FORMAT = 1  # of what is shown; another number sends everything once more
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
        born: when the log begins, in milliseconds; another log, another number.
        logged: the log's values by sequence number, one per (key, step).
        measured: evaluations and gaps, one value per metric; only of a run that has ended.
        files: place among the artifacts -> file or text.
    """

    name: str
    status: str
    started: int
    ended: int | None
    params: Mapping[str, str]
    tags: dict[str, str]
    born: int
    logged: Mapping[int, Number]
    measured: Mapping[str, Number]
    files: Mapping[str, File]


class Projection:
    """Reads the trials of one sweep; baselines and planned evaluations are read once."""

    def __init__(self, lab: Lab, plan: StoredPlan) -> None:
        self._lab = lab
        self._planned = [evaluation_spec(tree) for tree in plan.evaluate]
        self._baselines: dict[str, list[Any]] = {}
        self._stopped = stopped_early.read(lab.sweep(plan.name).stopped_path)

    def pictures(self) -> list[str]:
        """Keys of the pictures that the planned evaluations make."""
        return [picture_key(s, self._planned) for s in self._planned if s.kind != "heldout_loss"]

    def state(self, trial: Trial) -> RunState:
        """The run's state; one that has no spec yet is pending, whoever holds it."""
        run = self._lab.run(trial.run)
        state = run.state() if (run.path / "spec.yaml").exists() else RunState.PENDING
        return state_in_sweep(state, run.name, self._stopped)

    def stamp(self, trial: Trial, state: RunState) -> str:
        """A fingerprint of all that `view` depends on, from names, sizes and times of files."""
        run = self._lab.run(trial.run)
        facts = [FORMAT, state, trial.key, run_marks(run), repr(trial.varied), trial.label]
        if trial.baseline is not None and state.ended:
            if trial.baseline not in self._baselines:
                self._baselines[trial.baseline] = run_marks(self._lab.run(trial.baseline))
            facts.append(self._baselines[trial.baseline])
        return hashlib.sha256(json.dumps(facts).encode()).hexdigest()[:16]

    def view(self, trial: Trial, state: RunState) -> View:
        """All of it.

        Raises:
            UserError: a part of the record cannot be read.
        """
        run, spec = self._lab.run(trial.run), trial.spec()
        measured_once = (run.result() or {}).get("metrics", {})  # one value, not a curve beside it
        entries = first_entries(read_entries(run.log_path))
        logged = [entry for entry in entries if entry.key not in measured_once]
        times = [entry.time for entry in logged]
        started = min([*times[:1], _started(run)])
        last = max(times, default=started)
        ended = state.ended
        gaps, problem = self._gaps(trial) if ended else ({}, "")
        step = int((run.result() or {}).get("step", max((e.step for e in logged), default=0)))
        files: dict[str, File] = {"spec.yaml": run.path / "spec.yaml"}
        if ended:
            files, unread = run_files(run, self._planned, step=step, time=_milliseconds(last))
            problem = problem or unread
        return View(
            name=f"{trial.label} seed {trial.seed}",
            status=STATUS[state],
            started=_milliseconds(started),
            ended=None if state is RunState.RUNNING else _milliseconds(_end(run, last)),
            params=_params(trial, spec),
            tags=_tags(trial, spec, run, state=state, problem=problem, files=files),
            born=_milliseconds(times[0]) if times else 0,
            logged={entry.n: _number(entry) for entry in logged},
            measured=self._measured(run, logged, gaps, step, last) if ended else {},
            files=files,
        )

    def _measured(
        self,
        run: RunFolder,
        logged: list[Entry],
        gaps: Mapping[str, float],
        last_step: int,
        last_time: float,
    ) -> dict[str, Number]:
        """Costs, evaluations and gaps at the step they belong to; what was logged is left out."""
        costs = (run.result() or {}).get("metrics", {})
        values = {name: (value, last_step) for name, value in costs.items()}
        for spec, tree in _evaluations(run):
            rest = difference(spec, self._planned)
            for name, value in tree["metrics"].items():
                values[name + rest] = (value, tree.get("step", last_step))
        values.update({name: (value, last_step) for name, value in gaps.items()})
        time, taken = _milliseconds(last_time), {(entry.key, entry.step) for entry in logged}
        numbers = (
            Number(to_mlflow(name), _finite(value), step, time)
            for name, (value, step) in values.items()
            if (name, step) not in taken
        )
        return {number.key: number for number in numbers}

    def _gaps(self, trial: Trial) -> tuple[dict[str, float], str]:
        """Gaps to the baseline with the ends of their intervals, or why there are none."""
        baseline = trial.baseline
        if baseline in (None, trial.run) or self._lab.run(baseline).result() is None:
            return {}, ""
        planned = [signature(spec) for spec in self._planned]
        try:
            gaps = run_gaps(self._lab, trial.run, baseline, planned=planned)
        except UserError as error:
            return {}, str(error)
        ends = (("", "mean"), ("_low", "low"), ("_high", "high"))
        return {f"{k}{e}": getattr(gap, a) for k, gap in gaps.items() for e, a in ends}, ""


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
    """Name, size and time of a file; nothing if it is absent."""
    try:
        facts = path.stat()
    except OSError:
        return []
    return [f"{path.parent.name}/{path.name}", facts.st_size, facts.st_mtime_ns]


def _evaluations(run: RunFolder) -> Iterator[tuple[EvaluationSpec, dict[str, Any]]]:
    for folder in run.evaluations():
        tree = folder.read()
        if tree is not None:
            yield evaluation_spec(tree["spec"]), tree


def _params(trial: Trial, spec: RunSpec) -> dict[str, str]:
    """The flat parameters, and the axes that are none of them; empty ones are left out.

    MLflow's plots would take an empty value for 0: the dense run has no start.
    """
    params = {**trial.varied, **parameters(spec)}
    return {name: str(value) for name, value in params.items() if value != ""}


def _tags(
    trial: Trial,
    spec: RunSpec,
    run: RunFolder,
    *,
    state: RunState,
    problem: str,
    files: Iterable[str],
) -> dict[str, str]:
    """What people filter and group by; `cell` is shared by the seeds of one point of the grid."""
    attempts = run.origin()
    origin = attempts[-1] if attempts else {}
    code, reason = str(origin.get("code") or ""), str((run.result() or {}).get("reason") or "")
    tags = {
        "cell": trial.label,
        "role": trial.role,
        "state": state,
        "signature": trial.run,
        "code": code,
        "device": str(origin.get("device") or ""),
        "problem": problem,
        "attempts": str(len(attempts)) if len(attempts) > 1 else "",
        "mlflow.source.name": f"tread-lab sweep {trial.sweep}",
        "mlflow.source.type": "LOCAL",
        "mlflow.source.git.commit": code.removesuffix("-dirty"),
        "mlflow.loggedImages": "True" if has_pictures(files) else "",
        "mlflow.note.content": f"**{state}**: {reason[:2000]}" if reason else "",
    }
    return {name: value for name, value in tags.items() if value}


def _number(entry: Entry) -> Number:
    return Number(to_mlflow(entry.key), _finite(entry.value), entry.step, _milliseconds(entry.time))


def _finite(value: float) -> float:
    """Infinity becomes NaN: MLflow would store 1.8e308, and no curve would be seen beside it."""
    return math.nan if math.isinf(value) else value


def _milliseconds(seconds: float) -> int:
    return round(seconds * 1000)


def _started(run: RunFolder) -> float:
    """When the first attempt began."""
    origin = run.origin()
    return float((origin[0] if origin else {}).get("started") or _modified(run.path / "spec.yaml"))


def _modified(path: Path) -> float:
    return path.stat().st_mtime


def _end(run: RunFolder, last_time: float) -> float:
    """When the result was written; before there is one, when something was logged last."""
    path = run.path / "result.json"
    return max(last_time, _modified(path)) if path.exists() else last_time
