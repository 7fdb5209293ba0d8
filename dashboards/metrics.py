"""What Prometheus scrapes at `/metrics`: the states of each sweep's runs, as records have them."""

from __future__ import annotations

import os
from collections.abc import Iterator

from tread_lab.dashboards.summary import state_counts, summary
from tread_lab.records.durable import modified
from tread_lab.records.lab import Lab
from tread_lab.records.status import RunState
from tread_lab.records.sweep_folder import SweepFolder
from tread_lab.specs.errors import UserError

CONTENT = "text/plain; version=0.0.4; charset=utf-8"
MOST = 200  # sweeps that are told apart, the newest
GAUGES = {  # all can fall: records are removed, plans are made anew
    "tread_lab_readable": "Whether the lab could be read: 1 or 0.",
    "tread_lab_sweeps": "Sweeps planned in the lab; the newest 200 have metrics of their own.",
    "tread_lab_sweep_readable": "Whether the sweep's plan and records could be read: 1 or 0.",
    "tread_lab_sweep_ended": "Whether nothing of the sweep is left to run: 1 or 0.",
    "tread_lab_sweep_driven": "Whether a driver works at the sweep: 1 or 0.",
    "tread_lab_trials": "Trials of the sweep's plan so far.",
    "tread_lab_runs": "Runs of the sweep by status.",
}
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
    of, driven = summary(sweep), sweep.driven
    states = state_counts(lab, sweep, of.runs)
    ended = not driven and not of.to_suggest and all(state.ended for state in states)
    yield "tread_lab_sweep_readable", label, 1
    yield "tread_lab_trials", label, of.trials
    yield "tread_lab_sweep_driven", label, int(driven)
    yield "tread_lab_sweep_ended", label, int(ended)
    for state in RunState:
        yield "tread_lab_runs", (*label, ("status", str(state))), states[state]


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
