"""Labels: the one place that names cells, trials and runs: `2->8 s=0.5 precision=bf16 seed 0`."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import groupby
from typing import Any, TypeVar

from tread_lab.config.cell import AnySpec, Cell, Spec, Trial, axis_label
from tread_lab.config.decode import decode, encode
from tread_lab.config.fields import dotted
from tread_lab.config.recipe import PlainLoss
from tread_lab.config.routes import RouteBypass, RouteSpec
from tread_lab.config.run import RunSpec
from tread_lab.config.signature import signature
from tread_lab.config.units import short

OneSpec = TypeVar("OneSpec", bound=Spec)

_SEEDS = re.compile(r"(init_from\.run\.)*seed")  # of a run and of those that it descends from
ROUTE_AXES = ("start", "end", "route", "routes", "rate")  # axes that a route and its rate tell


def plain_markdown(text: str) -> str:
    """Return a text on one line as Markdown shows it unchanged: no tags, links or code in it."""
    without_tags = re.sub(r"&(?=#|\w+;)", "&amp;", text)
    without_tags = re.sub(r"<(?=[A-Za-z/!?])", "&lt;", without_tags)
    return without_tags.replace("](", "]\\(").replace("`", "\\`").replace("\n", " ")


def cell_text(cell: Mapping[str, Any]) -> str:
    """Return `start=3, end=2`: axis values as a sweep file has them; the cell need be no run."""
    return ", ".join(f"{axis_label(k)}={v}" for k, v in cell.items()) or "the base run"


def cell_label(trial: Trial[Spec]) -> str:
    """Return the label that the seeds of a cell share: `2->8 s=0.5 precision=fp32`, `dense`.

    It tells the routes, their rate, and every other axis of the cell; of a control what it changes.
    """
    return _label(trial.role, trial.cell, trial.spec)


def place_label(cell: Mapping[str, Any]) -> str:
    """Return the label of a cell without a trial, from its axis values: `2->8 s=0.5`."""
    if not {"start", "end"} <= set(cell):
        return " ".join(f"{key}={value_text(value)}" for key, value in cell.items())
    rate = f" s={value_text(cell['rate'])}" if "rate" in cell else ""
    return " ".join([f"{cell['start']}->{cell['end']}{rate}", *_settings(cell)])


def trial_label(trial: Trial[Spec]) -> str:
    """`2->8 s=0.5 seed 0`."""
    return f"{cell_label(trial)} seed {trial.seed}"


def run_label(spec: RunSpec) -> str:
    """Return the label of a run outside any sweep: `2->8 s=0.5 sprint seed 0`."""
    parts = [_lineage(spec)]
    parts += [] if spec.bypass == RouteBypass() else [str(spec.bypass)]
    parts += [] if spec.loss == PlainLoss() else [f"loss {spec.loss}"]
    parts += spec.beside_labels
    return " ".join([*parts, f"seed {spec.seed}"])


def run_labels(trials: Sequence[Trial[Spec]]) -> dict[str, str]:
    """Return the label of every run of a plan, that of its first trial.

    Runs that trials start from have the axis values in which such runs differ.
    """
    labels: dict[str, str] = {}
    trials = with_baseline_cells(trials)
    for trial in trials:
        if trial.run not in labels:
            labels[trial.run] = trial_label(trial)
    taken = set(labels.values())
    for run, label in _parent_labels(trials).items():
        labels.setdefault(run, f"parent {label}" if label in taken else label)
    return labels


def with_baseline_cells(
    trials: Sequence[Trial[AnySpec]],
) -> tuple[Trial[AnySpec], ...]:
    """Return the trials; several baselines get the axis values that their trials have in common.

    A sweep over precisions has a dense run in each: these are cells, not seeds of one.
    """
    baselines = {trial.run: trial for trial in trials if trial.role == "baseline"}
    served = _served_cells((t.baseline, t.cell) for t in trials if t.role == "trial")
    cells = {run: trial.cell or served.get(run, {}) for run, trial in baselines.items()}
    seeds = Counter((repr(cells[run]), trial.seed) for run, trial in baselines.items())
    told = {} if all(count == 1 for count in seeds.values()) else _told_apart(baselines)
    own = {run: {**cell, **told.get(run, {})} for run, cell in cells.items()}

    def cell_of(trial: Trial[AnySpec]) -> Cell:
        if trial.role == "baseline":
            return own[trial.run]
        return {**own.get(trial.baseline or "", {}), **trial.cell}

    return tuple(
        trial if trial.role == "trial" else replace(trial, cell=cell_of(trial)) for trial in trials
    )


def _told_apart(trials: Mapping[str, Trial[Spec]]) -> dict[str, dict[str, Any]]:
    """Return by run the fields in which the specs of these runs differ, but for their seeds.

    Fields that are computed from the axes of trials make several baselines, which no axis names.
    """
    trees = {
        run: dict(dotted(encode(t.spec) if isinstance(t.spec, RunSpec) else t.spec))
        for run, t in trials.items()
    }
    names = dict.fromkeys(name for tree in trees.values() for name in tree)
    fields = [
        name
        for name in names
        if not _SEEDS.fullmatch(name) and len({repr(tree.get(name)) for tree in trees.values()}) > 1
    ]
    return {run: {name: tree.get(name) for name in fields} for run, tree in trees.items()}


def without_axis(label: str, axis: str) -> str:
    """Return a cell's label without the value of one numeric axis; routes' own rates stay."""
    if axis == "rate" and re.search(r" s=\S+ \+ ", label):
        return label
    short = "s" if axis == "rate" else re.escape(axis.rpartition(".")[2])
    long = re.escape(axis)
    return re.sub(rf" (?:{short}|{long})=\S+", "", label)


def value_text(value: Any) -> str:
    """Return a value as labels show it: short numbers, lists and mappings as compact JSON."""
    if isinstance(value, dict | list | tuple):
        return json.dumps(value, separators=(",", ":"))
    return short(value) if isinstance(value, float) else str(value)


def ancestors(spec: OneSpec) -> Iterator[tuple[str, OneSpec]]:
    """Yield the runs that a run descends from, the eldest first, each with its name."""
    if isinstance(spec, RunSpec):
        parent: Any = spec.parent
    else:
        start = spec.get("init_from") or {}
        parent = start.get("run")
    if parent is not None:
        yield from ancestors(parent)
        yield signature(decode(RunSpec, parent)), parent


def _label(role: str, cell: Mapping[str, Any], spec: Spec) -> str:
    routed = "control" if role == "control" else _lineage(spec)
    if routed == "dense" and role != "baseline":
        routed = _rate_zero(cell) or routed
    label = " ".join([routed, *_settings(cell)])
    return f"baseline {label}" if role == "baseline" and "->" in routed else label


def _settings(cell: Mapping[str, Any]) -> list[str]:
    """Return `precision=fp32` for every axis but the route's; equal short names are in full."""
    axes = [axis for axis in cell if axis not in ROUTE_AXES and axis != "selection"]
    short = {axis: axis.rpartition(".")[2] for axis in axes}
    count = Counter(short.values())
    names = {axis: name if count[name] == 1 else axis for axis, name in short.items()}
    return [f"{name}={value_text(cell[axis])}" for axis, name in names.items()]


def _lineage(spec: Spec) -> str:
    """Return the routes of a run after those of its parents: `2->8 s=0.5 then dense`."""
    family = (*(parent for _, parent in ancestors(spec)), spec)
    routes = (
        one.routes
        if isinstance(one, RunSpec)
        else [RouteSpec(**route) for route in one.get("routes") or ()]
        for one in family
    )
    return " then ".join(step for step, _ in groupby(map(_routes_label, routes)))


def _routes_label(routes: Sequence[RouteSpec]) -> str:
    """Return `2->8 s=0.5`, `2->8 by rows s=0.5`, `0->1 s=0.25 + 3->4 s=0.5`, or `dense`."""
    named = [route.in_full for route in routes]
    rates = {route.rate for route in routes}
    if len(rates) == 1:
        return f"{' + '.join(named)} s={short(rates.pop())}"
    both = (f"{name} s={route.rate:g}" for name, route in zip(named, routes))
    return " + ".join(both) or "dense"


def _rate_zero(cell: Mapping[str, Any]) -> str:
    """Return the place of a cell whose rate of 0 leaves no route: `2->8 s=0`."""
    if {"start", "end"} <= set(cell):
        return f"{cell['start']}->{cell['end']} s=0"
    written = cell.get("route", cell.get("routes"))
    return f"{written} s=0" if isinstance(written, str) else ""


def _parent_labels(trials: Sequence[Trial[Spec]]) -> dict[str, str]:
    """Return the labels of parents, with the axis values in which they differ."""
    served = [(name, spec, trial) for trial in trials for name, spec in ancestors(trial.spec)]
    own = _served_cells((name, trial.cell) for name, _, trial in served)
    return {
        name: f"{_label('parent', own.get(name, {}), spec)} seed {trial.seed}"
        for name, spec, trial in served
    }


def _served_cells(
    served: Iterable[tuple[str | None, Mapping[str, Any]]],
) -> dict[str, dict[str, Any]]:
    """Return run -> the values that its cells share, of axes in which such runs differ."""
    cells: dict[str, list[Mapping[str, Any]]] = {}
    for run, cell in served:
        if run is not None:
            cells.setdefault(run, []).append(cell)
    shared = {
        run: {a: v for a, v in own[0].items() if all(cell.get(a) == v for cell in own)}
        for run, own in cells.items()
    }
    axes = dict.fromkeys(axis for cell in shared.values() for axis in cell)
    varying = [
        axis
        for axis in axes
        if axis not in ROUTE_AXES and len({repr(cell.get(axis)) for cell in shared.values()}) > 1
    ]
    return {run: {a: cell[a] for a in varying if a in cell} for run, cell in shared.items()}
