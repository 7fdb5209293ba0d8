"""What Prometheus scrapes at `/metrics`: the state of each sweep, by the records that changed."""

from __future__ import annotations

import os
import statistics
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path

from tread_lab.dashboards.live import last_entries
from tread_lab.records.durable import modified
from tread_lab.records.lab import Lab
from tread_lab.records.metric_names import ENERGY, POWER, TRAIN_IMAGES_PER_S, USE
from tread_lab.records.run_folder import RunFolder
from tread_lab.records.status import RunState
from tread_lab.records.sweep_folder import SweepFolder, state_in_sweep
from tread_lab.specs.errors import UserError

CONTENT = "text/plain; version=0.0.4; charset=utf-8"
MOST = 200  # sweeps that are told apart, the newest
GAUGES = {  # all can fall: records are removed, runs resume from a checkpoint
    "tread_lab_readable": "Whether the lab could be read: 1 or 0.",
    "tread_lab_sweeps": "Sweeps planned in the lab; the newest 200 have metrics of their own.",
    "tread_lab_sweep_readable": "Whether the sweep's plan and records could be read: 1 or 0.",
    "tread_lab_sweep_ended": "Whether nothing of the sweep is left to run: 1 or 0.",
    "tread_lab_sweep_driven": "Whether a driver works at the sweep: 1 or 0.",
    "tread_lab_trials": "Trials of the sweep's plan so far.",
    "tread_lab_runs": "Runs of the sweep by status.",
    "tread_lab_images_per_second": "Images per second that the running runs last logged, summed.",
    "tread_lab_newest_record_timestamp_seconds": "When a run of the sweep last wrote a record.",
    "tread_lab_gpu_utilization_ratio": "GPU use of the running runs, their mean, from 0 to 1.",
    "tread_lab_gpu_power_watts": "Power of the running runs' GPUs, summed.",
    "tread_lab_energy_joules": "Energy of all runs of the sweep whose energy is known.",
}
KEPT = 200_000  # results that are remembered, of some 300 bytes each
Stamp = tuple[int, int, int]
Labels = tuple[tuple[str, str], ...]
Sample = tuple[str, Labels, float]


def metrics_text(lab: Lab) -> str:
    """Return the metrics of a lab in Prometheus's text format; a fault is a metric, too."""
    samples: dict[str, list[str]] = {name: [] for name in GAUGES}
    for name, labels, value in _samples(lab):
        pairs = ",".join(f'{key}="{_escaped(text)}"' for key, text in labels)
        samples[name].append(f"{name}{{{pairs}}} {value!r}" if pairs else f"{name} {value!r}")
    lines = []
    for name, values in samples.items():
        if values:
            lines += [f"# HELP {name} {GAUGES[name]}", f"# TYPE {name} gauge", *values]
    return "\n".join(lines) + "\n"


def _samples(lab: Lab) -> Iterator[Sample]:
    try:
        os.listdir(lab.root)  # noqa: PTH208 (a glob passes over what it cannot read)
        sweeps = sorted(map(lab.sweep, lab.sweeps()), key=lambda s: -(modified(s.plan_path) or 0))
    except (OSError, UserError):
        yield "tread_lab_readable", (), 0
        return
    yield "tread_lab_readable", (), 1
    yield "tread_lab_sweeps", (), len(sweeps)
    for sweep in sweeps[:MOST]:
        label = (("sweep", sweep.name),)
        try:
            samples = list(_sweep_samples(lab, sweep, label))
        except (OSError, UserError, ValueError, KeyError, TypeError):  # damaged records
            samples = [("tread_lab_sweep_readable", label, 0)]
        yield from samples


def _sweep_samples(lab: Lab, sweep: SweepFolder, label: Labels) -> Iterator[Sample]:
    stamps = _stamp(sweep.plan_path), _stamp(sweep.suggestions_path)
    trials, runs, to_suggest = _planned(sweep, *stamps)
    stopped = sweep.stopped()
    states: Counter[RunState] = Counter(dict.fromkeys(RunState, 0))
    totals = _Totals()
    try:
        begun = set(os.listdir(lab.root / "runs"))  # noqa: PTH208 (the names are enough)
    except FileNotFoundError:
        begun = set()
    for run in runs:
        state = totals.add(lab.run(run)) if run in begun else RunState.PENDING
        states[state_in_sweep(state, run, stopped)] += 1
    yield "tread_lab_sweep_readable", label, 1
    yield "tread_lab_trials", label, trials
    yield "tread_lab_sweep_driven", label, int(driven := sweep.driven)
    open_states = [state for state, count in states.items() if count and not state.ended]
    ended = not (driven or to_suggest or open_states)
    yield "tread_lab_sweep_ended", label, int(ended)
    for state, count in states.items():
        yield "tread_lab_runs", (*label, ("status", str(state))), count
    yield "tread_lab_images_per_second", label, sum(totals.values(TRAIN_IMAGES_PER_S))
    if totals.newest:
        yield "tread_lab_newest_record_timestamp_seconds", label, totals.newest
    if use := totals.values(USE):
        yield "tread_lab_gpu_utilization_ratio", label, statistics.fmean(use)
        yield "tread_lab_gpu_power_watts", label, sum(totals.values(POWER))
    if totals.joules:
        yield "tread_lab_energy_joules", label, sum(totals.joules)


def _stamp(path: Path) -> Stamp:
    """Return when a file was written, its size and its inode; zeros if it does not exist."""
    try:
        facts = os.stat(path)  # noqa: PTH116 (called for each run at each scrape)
    except OSError:
        return 0, 0, 0
    return facts.st_mtime_ns, facts.st_size, facts.st_ino


@lru_cache(maxsize=MOST)
def _planned(sweep: SweepFolder, *stamps: Stamp) -> tuple[int, tuple[str, ...], int]:
    """Return how many trials a plan has, the names of its runs, and how many cells a search has yet
    to suggest, read once for each `stamps`."""
    plan = sweep.plan()
    return len(plan.trials), tuple(plan.runs()), plan.to_suggest


@lru_cache(maxsize=KEPT)
def _result(path: str, stamp: Stamp) -> tuple[RunState | None, float | None]:
    """Return the state and the energy of a run that has ended, read once for each `stamp`."""
    result = RunFolder(Path(path).parent).result()
    if result is None:
        return None, None
    return RunState(result["state"]), (result.get("metrics") or {}).get(ENERGY)


@lru_cache(maxsize=KEPT)
def _logged_last(run: RunFolder, stamp: Stamp) -> Mapping[str, float]:
    """Return what a run logged at its newest step, read once for each `stamp` of its log."""
    entries = sorted(last_entries(run), key=lambda entry: entry.n)
    values = {entry.key: entry.value for entry in entries if entry.step == entries[-1].step}
    return {key: values[key] for key in (TRAIN_IMAGES_PER_S, USE, POWER, ENERGY) if key in values}


@dataclass
class _Totals:
    """What the runs of a sweep add up to."""

    newest: float = 0.0
    joules: list[float] = field(default_factory=list)
    running: list[Mapping[str, float]] = field(default_factory=list)

    def add(self, folder: RunFolder) -> RunState:
        """Add a run that has begun; return its state."""
        path = folder.path / "result.json"
        stamp, logged = _stamp(path), _stamp(folder.log_path)
        times = stamp[0], logged[0], _stamp(folder.path / "evaluations")[0]
        self.newest = max(self.newest, max(times) / 1e9)
        ended, energy = _result(str(path), stamp) if any(stamp) else (None, None)
        state = ended or folder.state()
        last = {} if state is RunState.COMPLETED else _logged_last(folder, logged)
        if state is RunState.RUNNING:
            self.running.append(last)
        energy = last.get(ENERGY, energy)
        self.joules += [] if energy is None else [float(energy)]
        return state

    def values(self, key: str) -> list[float]:
        """Return the last value of each running run that has one."""
        return [values[key] for values in self.running if key in values]


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
