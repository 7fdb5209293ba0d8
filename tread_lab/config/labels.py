"""Cells of a sweep, and the one place that names cells, runs, evaluations and metrics."""

from __future__ import annotations

import json
import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from itertools import groupby
from typing import Any, Generic, TypeVar

from tread_lab.config.decode import decode, encode
from tread_lab.config.evaluation import (
    AT,
    EvaluationDefaults,
    SamplesSpec,
    end_signature,
    without_step,
)
from tread_lab.config.fields import dotted
from tread_lab.config.guidance import in_short
from tread_lab.config.metrics import HELDOUT, METRICS, OWN_FEATURES
from tread_lab.config.recipe import PlainLoss
from tread_lab.config.routes import RouteBypass, RouteSpec
from tread_lab.config.run import RunSpec
from tread_lab.config.signature import signature
from tread_lab.config.units import short

Cell = dict[str, Any]
Tree = Mapping[str, Any]
Spec = RunSpec | Tree  # of a run, or the tree of one
AnySpec = TypeVar("AnySpec", bound=Spec, covariant=True)


@dataclass(frozen=True)
class Trial(Generic[AnySpec]):
    """A cell with one seed.

    Attributes:
        role: `baseline`, `control` (a baseline with other settings) or `trial`.
        cell: values of its axes; empty for a baseline, the changed fields for a control.
        spec: spec of its run, or its tree in a stored plan.
        run, baseline: signatures of its run and of the run it is compared with.
    """

    role: str
    cell: Cell
    seed: int
    spec: AnySpec
    run: str
    baseline: str | None

    @staticmethod
    def read(tree: Tree) -> Trial[Tree]:
        """Return the trial of its tree in `plan.json`.

        Raises:
            KeyError: the tree lacks a field.
        """
        return Trial(**{field.name: tree[field.name] for field in fields(Trial)})

    def tree(self) -> dict[str, Any]:
        """Return the trial as `plan.json` has it."""
        spec = self.spec if isinstance(self.spec, Mapping) else encode(self.spec)
        return {**vars(self), "cell": encode(self.cell), "spec": spec}

    @property
    def steps(self) -> int:
        spec = self.spec
        return spec.train.steps if isinstance(spec, RunSpec) else int(spec["train"]["steps"])


@dataclass(frozen=True)
class ExcludedCells:
    """Cells excluded by one rule of `where`."""

    rule: str
    count: int
    examples: tuple[Cell, ...]


def axis_label(key: str) -> str:
    """Return the short name of an axis: `start` for `route.start`."""
    return key.removeprefix("route.")


def labelled(cell: Cell) -> Cell:
    """Return the cell under the short names of its axes."""
    return {axis_label(key): value for key, value in cell.items()}


OneSpec = TypeVar("OneSpec", bound=Spec)

_SEEDS = re.compile(r"(init_from\.run\.)*seed")  # of a run and of those that it descends from
ROUTE_AXES = ("start", "end", "route", "routes", "rate")  # axes that a route and its rate tell


def plain_markdown(text: str) -> str:
    """Return a line of text escaped for Markdown."""
    without_tags = re.sub(r"&(?=#|\w+;)", "&amp;", text)
    without_tags = re.sub(r"<(?=[A-Za-z/!?])", "&lt;", without_tags)
    return without_tags.replace("](", "]\\(").replace("`", "\\`").replace("\n", " ")


def cell_text(cell: Mapping[str, Any]) -> str:
    """Return axis values as in a sweep file, `start=3, end=2`, also for impossible cells."""
    return ", ".join(f"{axis_label(k)}={v}" for k, v in cell.items()) or "the base run"


def cell_label(trial: Trial[Spec]) -> str:
    """Return the label that the seeds of a cell share: `2->8 s=0.5 precision=fp32`, `dense`.

    It contains the routes, their rate and every other axis; for a control, the changed fields.
    """
    routed = "control" if trial.role == "control" else _lineage(trial.spec)
    if routed == "dense" and trial.role != "baseline":
        routed = _rate_zero(trial.cell) or routed
    label = " ".join([routed, *_settings(trial.cell)])
    return f"baseline {label}" if trial.role == "baseline" and "->" in routed else label


def run_label(spec: RunSpec) -> str:
    """Return the label of a run outside any sweep: `2->8 s=0.5 sprint seed 0`."""
    parts = [_lineage(spec)]
    parts += [] if spec.bypass == RouteBypass() else [str(spec.bypass)]
    parts += [] if spec.loss == PlainLoss() else [f"loss {spec.loss}"]
    parts += spec.beside_labels
    return " ".join([*parts, f"seed {spec.seed}"])


def run_labels(trials: Sequence[Trial[Spec]]) -> dict[str, str]:
    """Return the label of every run of a plan: of its first trial, or as the parent of the first
    run that starts from it."""
    labels: dict[str, str] = {}
    trials = with_baseline_cells(trials)
    for trial in trials:
        labels.setdefault(trial.run, f"{cell_label(trial)} seed {trial.seed}")
    for trial in trials:
        for name, spec in ancestors(trial.spec):
            labels.setdefault(name, f"{_lineage(spec)}, parent of {labels[trial.run]}")
    return labels


def with_baseline_cells(
    trials: Sequence[Trial[AnySpec]],
) -> tuple[Trial[AnySpec], ...]:
    """Return the trials; if there are several baselines, each gets the axis values that its trials
    share.

    Dense runs in several precisions are different cells, not seeds of one. Baselines with equal
    axis values, e.g. with computed fields, get the fields in which they differ.
    """
    baselines = {trial.run: trial for trial in trials if trial.role == "baseline"}
    served = defaultdict[str, list[Cell]](list)
    for trial in trials:
        if trial.role == "trial" and trial.baseline:
            served[trial.baseline].append(trial.cell)
    shared = {
        run: {a: v for a, v in cells[0].items() if all(cell.get(a) == v for cell in cells)}
        for run, cells in served.items()
    }
    shared = _apart(shared, leave=ROUTE_AXES)
    own = {run: {**shared.get(run, {}), **trial.cell} for run, trial in baselines.items()}
    if len({(repr(own[run]), trial.seed) for run, trial in baselines.items()}) < len(baselines):
        trees = {run: dict(dotted(trial.tree()["spec"])) for run, trial in baselines.items()}
        seeds = [name for tree in trees.values() for name in tree if _SEEDS.fullmatch(name)]
        told = _apart(trees, leave=seeds)
        own = {run: {**cell, **told[run]} for run, cell in own.items()}
    return tuple(
        trial
        if trial.role == "trial"
        else replace(trial, cell={**own.get(trial.baseline or trial.run, {}), **trial.cell})
        for trial in trials
    )


def _apart(trees: Mapping[str, Cell], leave: Sequence[str]) -> dict[str, Cell]:
    """Return by run the values in which trees differ, without those of some names."""
    names = dict.fromkeys(name for tree in trees.values() for name in tree if name not in leave)
    kept = [name for name in names if len({repr(t.get(name)) for t in trees.values()}) > 1]
    return {run: {n: tree[n] for n in kept if n in tree} for run, tree in trees.items()}


def without_axis(label: str, axis: str) -> str:
    """Return a cell's label without the value of one numeric axis; rates inside routes are kept."""
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
    """Yield the ancestors of a run with their names, the oldest first."""
    start = {} if isinstance(spec, RunSpec) else spec.get("init_from") or {}
    parent: Any = spec.parent if isinstance(spec, RunSpec) else start.get("run")
    if parent is not None:
        yield from ancestors(parent)
        yield signature(decode(RunSpec, parent)), parent


def _settings(cell: Mapping[str, Any]) -> list[str]:
    """Return `precision=fp32` for every axis but the route's; equal short names are in full."""
    axes = [axis for axis in cell if axis not in (*ROUTE_AXES, "selection", "l1")]
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
    rates = {route.rates for route in routes}
    if len(rates) == 1:
        return f"{' + '.join(named)} s={rates.pop()}"
    both = (f"{name} s={route.rates}" for name, route in zip(named, routes))
    return " + ".join(both) or "dense"


def _rate_zero(cell: Mapping[str, Any]) -> str:
    """Return the place of a cell whose rate of 0 leaves no route: `2->8 s=0`."""
    if {"start", "end"} <= set(cell):
        return f"{cell['start']}->{cell['end']} s=0"
    written = cell.get("route", cell.get("routes"))
    return f"{written} s=0" if isinstance(written, str) else ""


def count_label(count: int) -> str:
    """Return a sample size as in metric names: `10k` for 10000, `512` for 512."""
    return f"{count // 1000}k" if count % 1000 == 0 else str(count)


def _against(metric: str, tree: Tree, source: str | None) -> str:
    """Return `[heldout]` for a metric in features of a large network without a reference file."""
    if metric not in METRICS or not METRICS[metric].compares or tree.get("reference"):
        return ""
    features = METRICS[metric].features
    inception = features == "any" and source is not None and source not in OWN_FEATURES
    return f"[{HELDOUT}]" if features in ("inception", "dinov2") or inception else ""


class MetricNames:
    """Names of metrics in tables, figures and MLflow: `heldout/loss`, `fd@1k w=1.5 SG(0.5/0.9)`.

    A name depends on its evaluation only: it contains the guidance, and other settings that differ
    from the defaults of the sweep or run. It does not contain the step.
    """

    def __init__(self, defaults: EvaluationDefaults) -> None:
        self._defaults = defaults
        self._names: dict[tuple[str, str], str] = {}

    def label(self, tree: Tree, source: str | None = None) -> str:
        """Return the label of an evaluation's tree: `heldout_loss`, `fd+kid@1k steps=8 at 250`, or
        `fid[heldout]@10k` where the data's held-out images replace a reference file.

        Args:
            source: data source, which determines the features of metrics such as `kid`; if unknown,
                these have no `[heldout]`.
        """
        at = f" {AT} {tree['step']}" if tree.get("step") is not None else ""
        name = tree["kind"]
        if name == "samples":
            metrics = [f"{m}{_against(m, tree, source)}" for m in tree["metrics"]]
            name = f"{'+'.join(metrics) or name}@{count_label(tree['count'])}"
        return f"{name}{self._suffix(without_step(tree))}{at}"

    def name(self, metric: str, evaluation: str, tree: Tree) -> str:
        """Return the name of a metric of the evaluation with this signature and tree."""
        if tree.get("step") is not None:
            evaluation, tree = end_signature(tree), without_step(tree)
        key = evaluation, metric
        if key not in self._names:
            self._names[key] = metric + self._suffix(tree)
        return self._names[key]

    def _suffix(self, tree: Tree) -> str:
        """The settings that are not usual; the weight says whether there is CFG."""
        own, usual = _told(tree), _told(self._usual_of(tree))
        values = {f: (own.get(f), usual.get(f)) for f in {**usual, **own} if f != "metrics"}
        said = [f for f, (x, y) in values.items() if repr(x) != repr(y) and {x, y} != {"", "CFG"}]
        return "".join(_setting(field, own.get(field)) for field in said)

    def _usual_of(self, tree: Tree) -> Tree:
        """Return the evaluation that needs no settings in the name of its metrics."""
        if tree["kind"] != "samples":
            return without_step(encode(getattr(self._defaults, tree["kind"])))
        usual = self._defaults
        sampler = {name: x for name, x in usual.sampler.items() if name != "guidance"}
        reference = usual.reference if tree.get("reference") else None
        own = {"metrics": tree["metrics"], "count": tree["count"], "reference": reference}
        return dict(encode(decode(SamplesSpec, {"sampler": sampler, **own})))


def _setting(field: str, value: Any) -> str:
    """Return ` key=value`; the method of guidance needs no key, and sets are ` x3`."""
    name = field.rpartition(".")[2]
    if name == "sets":
        return f" x{value}"
    if name == "method":
        return f" {value}" if value else ""
    return f" {name}={'none' if value is None else value_text(value)}"


def _told(tree: Tree) -> dict[str, Any]:
    """Return the dotted settings of an evaluation, guidance as people tell it: w, method, ..."""
    own = dict(tree)
    if own.get("reference"):
        own["reference"] = own["reference"]["name"]
    if sampler := own.get("sampler"):
        own["sampler"] = {**sampler, "guidance": in_short(sampler["guidance"])}
    return dict(dotted(own))
