"""A sweep file and its expansion into trials: pure, ordered, every hole counted and named."""

from __future__ import annotations

import copy
import itertools
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tread_lab.spec.decode import decode, encode
from tread_lab.spec.errors import UserError, suggest
from tread_lab.spec.evaluation import EvaluationSpec, decode_evaluations
from tread_lab.spec.expression import evaluate
from tread_lab.spec.routes import RouteSpec, block_index
from tread_lab.spec.run import ModelSpec, RunSpec
from tread_lab.spec.signature import signature

Cell = dict[str, Any]
_EXAMPLES = 5


@dataclass(frozen=True, kw_only=True)
class Experiment:
    """A named base run: the plain tree of a RunSpec, how it is sampled and what is measured."""

    name: str
    run: Mapping[str, Any]
    sampler: Mapping[str, Any] = field(default_factory=dict)
    evaluate: tuple[Any, ...] = ()


@dataclass(frozen=True, kw_only=True)
class SweepSpec:
    """What a sweep file says.

    Attributes:
        question: what the sweep answers.
        experiment: the base run, from `experiments/`.
        fixed: fields of the base run that every trial changes.
        baseline: fields that turn a trial into the run it is compared with; null for none.
        variants: axis -> {name: fields that this variant changes together}; an axis like any other.
        axes: field -> values; a mapping is a grid over its keys, a list of axes several grids.
        where: expressions that a cell must meet; the others are holes.
        seeds: every cell and its baseline run once per seed.
        evaluate: evaluations of every run; the experiment's where absent.
        sampler_axes: field of the sampler -> values, written as `axes` are; every evaluation of
            samples is made with each of them, on the same trained runs.
    """

    experiment: str
    question: str = ""
    fixed: dict[str, Any] = field(default_factory=dict)
    baseline: dict[str, Any] | None = field(default_factory=lambda: {"routes": []})
    variants: dict[str, Any] = field(default_factory=dict)
    axes: Any = field(default_factory=dict)
    where: tuple[str, ...] | str = ()
    seeds: tuple[int, ...] = (0,)
    evaluate: tuple[Any, ...] | None = None
    sampler_axes: Any = field(default_factory=dict)

    def __post_init__(self) -> None:
        if len(set(self.seeds)) != len(self.seeds) or not self.seeds:
            raise UserError(f"seeds: {list(self.seeds)} must be distinct, at least one")
        for axis, named in self.variants.items():
            if not isinstance(named, Mapping) or not all(
                isinstance(fields, Mapping) for fields in named.values()
            ):
                raise UserError(f"variants.{axis}: expected {{name: {{field: value}}}}")


@dataclass(frozen=True)
class Trial:
    """One run in a sweep: what varies (`cell`), its seed, and the run it is compared with."""

    role: str
    cell: Cell
    seed: int
    spec: RunSpec
    run: str
    baseline: str | None


@dataclass(frozen=True)
class Hole:
    """Cells left out for one reason."""

    reason: str
    count: int
    examples: tuple[Cell, ...]


@dataclass(frozen=True)
class Expansion:
    """All trials, baselines first, and the holes."""

    trials: tuple[Trial, ...]
    holes: tuple[Hole, ...]
    evaluations: tuple[EvaluationSpec, ...]


def expand(
    sweep: SweepSpec, experiment: Experiment, facts: Mapping[str, Any] | None = None
) -> Expansion:
    """The trials of a sweep.

    Args:
        facts: further names that `where` may use, such as what the device can do.

    Raises:
        UserError: an unknown axis, an impossible cell that `where` does not exclude, no cell left.
    """
    base = _with(experiment.run, sweep.fixed, "fixed")
    run_of(base)
    named = {axis: list(names) for axis, names in sweep.variants.items()}
    variants = list(_cells(named, "variants"))
    found = [{**v, **cell} for v in variants for cell in _grid(sweep.axes, "axes")]

    def tree_of(cell: Cell) -> dict[str, Any]:
        return _apply(base, cell, sweep.variants)

    cells, holes = _split(
        _unique(found), sweep.where, lambda cell: {**(facts or {}), **tree_of(cell)}
    )
    if not cells:
        raise UserError("where: no cell of the axes is left; loosen it")
    trials = [_trial(sweep, tree_of(cell), cell, seed) for seed in sweep.seeds for cell in cells]
    baselines = {trial.run: trial for trial, _ in trials if trial and trial.role == "baseline"}
    asked = experiment.evaluate if sweep.evaluate is None else sweep.evaluate
    samplers = _grid(sweep.sampler_axes, "sampler_axes")
    evaluations = decode_evaluations(asked, experiment.sampler, cells=samplers)
    if sweep.sampler_axes and not any(spec.kind == "samples" for spec in evaluations):
        raise UserError("sampler_axes: there is no evaluation of samples; add e.g. fd@1k")
    return Expansion(
        trials=(*baselines.values(), *(trial for _, trial in trials)),
        holes=tuple(holes),
        evaluations=evaluations,
    )


def run_of(tree: Mapping[str, Any], path: str = "") -> RunSpec:
    """The run of a tree; with `then: {fields}` the run that goes on from it, fields changed.

    `{..., then: {routes: [], train: {steps: 100}}}` is 100 dense steps that start from the weights
    of the run without `then`, which becomes its parent (`init_from`).
    """
    tree = dict(tree)
    then = tree.pop("then", None)
    if then is None:
        return decode(RunSpec, tree, path)
    if not isinstance(then, Mapping):
        raise UserError(f"then: expected fields of the run that goes on, got {then!r}").at(path)
    child = _with({**tree, "init_from": None}, then, "then")
    start = {**(child["init_from"] or {}), "run": encode(run_of(tree, path))}
    return run_of({**child, "init_from": start}, path)


def _trial(
    sweep: SweepSpec, tree: Mapping[str, Any], cell: Cell, seed: int
) -> tuple[Trial | None, Trial]:
    """The cell's baseline, if any, and its trial, with one seed."""
    tree = {**tree, "seed": seed}
    try:
        spec = run_of(tree)
    except UserError as error:
        raise UserError(f"axes at {show_cell(cell)}: {error}; leave it out by `where`") from None
    label = {label_of(key): value for key, value in cell.items()}
    if sweep.baseline is None:
        return None, Trial("trial", label, seed, spec, signature(spec), None)
    reference = run_of(_with(tree, sweep.baseline, "baseline"), "baseline")
    name = signature(reference)
    return (
        Trial("baseline", {}, seed, reference, name, None),
        Trial("trial", label, seed, spec, signature(spec), name),
    )


def _split(
    cells: Sequence[Cell], where: Sequence[str] | str, tree_of: Callable[[Cell], dict[str, Any]]
) -> tuple[list[Cell], list[Hole]]:
    """Cells that meet every expression, and the others by the first expression they miss."""
    rules = [where] if isinstance(where, str) else list(where)
    kept: list[Cell] = []
    missed: dict[str, list[Cell]] = {rule: [] for rule in rules}
    for cell in cells:
        fields = _Fields(tree_of(cell), cell)
        rule = next((rule for rule in rules if not _meets(rule, fields)), None)
        (kept if rule is None else missed[rule]).append(cell)
    holes = [_hole(f"where: {rule}", missed[rule]) for rule in rules if missed[rule]]
    return kept, holes


def _meets(rule: str, fields: _Fields) -> bool:
    try:
        return bool(evaluate(rule, fields))
    except UserError as error:
        raise error.at("where") from None


def _hole(reason: str, cells: Sequence[Cell]) -> Hole:
    shown = ({label_of(k): v for k, v in cell.items()} for cell in cells[:_EXAMPLES])
    return Hole(reason, len(cells), tuple(shown))


class _Fields:
    """Names an expression may use: axis labels, start, end, length, rate, B, N, dotted fields."""

    def __init__(self, tree: Mapping[str, Any], cell: Cell) -> None:
        self.tree = tree
        self.labels = {label_of(key): value for key, value in cell.items()}

    def __call__(self, name: str) -> Any:
        if name in ("start", "end", "length", "rate"):
            return self._route(name)
        if name == "B":
            return self._depth()
        if name in self.labels:
            return self.labels[name]
        node: Any = self.tree
        for part in name.split("."):
            if not isinstance(node, Mapping) or part not in node:
                known = {*self.labels, "start", "end", "length", "rate", "B", *self.tree}
                raise UserError(f"unknown name {name!r}{suggest(name, known)}")
            node = node[part]
        return node

    def _route(self, name: str) -> Any:
        routes = self.tree.get("routes") or [{}]
        route = routes[0] if isinstance(routes[0], Mapping) else _route_tree(routes[0])
        if name == "rate":
            return route.get("rate", 0.5)
        if "start" not in route or "end" not in route:
            raise UserError(f"{name!r} needs a route; add an axis `route` or a route to the base")
        ends = {key: block_index(route[key], self._depth()) for key in ("start", "end")}
        return ends["end"] - ends["start"] + 1 if name == "length" else ends[name]

    def _depth(self) -> int:
        model = self.tree.get("model", {})
        return decode(ModelSpec, model, "model").depth


def _grid(axes: Any, name: str) -> list[Cell]:
    """The distinct cells of one grid, or of a list of them."""
    grids = axes if isinstance(axes, list | tuple) else [axes]
    paths = [name if len(grids) == 1 else f"{name}[{k}]" for k in range(len(grids))]
    return _unique([cell for grid, path in zip(grids, paths) for cell in _cells(grid, path)])


def _cells(axes: Any, path: str) -> Iterator[Cell]:
    """The product of all axes, the last varying fastest."""
    if not isinstance(axes, Mapping):
        raise UserError(f"expected a mapping of axes, got {axes!r}").at(path)
    columns = [_axis(str(key), values, f"{path}.{key}") for key, values in axes.items()]
    for parts in itertools.product(*columns):
        yield {key: value for part in parts for key, value in part.items()}


def _axis(key: str, values: Any, path: str) -> list[Cell]:
    """The settings that one axis runs through."""
    if isinstance(values, Mapping):
        columns = [_axis(f"{key}.{sub}", v, f"{path}.{sub}") for sub, v in values.items()]
        return [{k: v for part in parts for k, v in part.items()} for parts in _product(columns)]
    settings: list[Cell] = []
    for value in _values(values, path):
        if isinstance(value, Mapping):
            settings.append({f"{key}.{sub}": item for sub, item in value.items()})
        else:
            settings.append({key: value})
    if not settings:
        raise UserError("has no values").at(path)
    return settings


def _product(columns: Sequence[list[Cell]]) -> Iterator[tuple[Cell, ...]]:
    return itertools.product(*columns)


def _values(values: Any, path: str) -> list[Any]:
    """A list as it is, `0..7` as 0 to 7 inclusive, `0..8 step 2`, one value as a list of one.

    Ranges are opened inside a list too; a list inside a list is one value.
    """
    if isinstance(values, list | tuple):
        parts = ([v] if isinstance(v, list | tuple) else _values(v, path) for v in values)
        return [item for part in parts for item in part]
    text = values if isinstance(values, str) else ""
    match = re.fullmatch(r"\s*(-?\d+)\s*\.\.\s*(-?\d+)(?:\s+step\s+(\d+))?\s*", text)
    if match is None:
        if ".." in text:
            raise UserError(f"{text!r} is not a range; write 0..7 or 0..8 step 2").at(path)
        return [values]
    first, last, step = int(match[1]), int(match[2]), int(match[3] or 1)
    if step == 0 or last < first:
        raise UserError(f"the range {text!r} is empty").at(path)
    if (last - first) // step >= 1_000_000:
        raise UserError(f"the range {text!r} has over a million values").at(path)
    return list(range(first, last + 1, step))


def _apply(
    base: Mapping[str, Any], cell: Cell, variants: Mapping[str, Mapping[str, Any]]
) -> dict[str, Any]:
    """The base tree with the fields of a cell, a variant's all at once."""
    tree = dict(base)
    for key, value in cell.items():
        if key in variants:
            tree = _with(tree, variants[key][value], f"variants.{key}.{value}")
        else:
            _set(tree, key, value)
    return tree


def _with(base: Mapping[str, Any], fields: Mapping[str, Any], path: str) -> dict[str, Any]:
    """The base tree with some fields changed; nested mappings change only what they name."""
    tree = dict(base)
    for key, value in fields.items():
        try:
            for dotted, leaf in _leaves(str(key), value):
                _set(tree, dotted, leaf)
        except UserError as error:
            raise error.at(path) from None
    return tree


def _leaves(key: str, value: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(value, Mapping) and value and key not in ("route",):
        for sub, item in value.items():
            yield from _leaves(f"{key}.{sub}", item)
    else:
        yield key, value


def _set(tree: dict[str, Any], key: str, value: Any) -> None:
    """Set a dotted field, copying what is on the way; `route` and `rate` are shorthands."""
    head, _, rest = key.partition(".")
    if head == "route":
        routes = [_route_tree(route) for route in tree.get("routes") or [{}]]
        routes[0] = {**routes[0], **({rest: value} if rest else _route_tree(value))}
        tree["routes"] = routes
    elif key == "rate":
        tree["routes"] = [{**_route_tree(r), "rate": value} for r in tree.get("routes") or [{}]]
    elif not rest:
        tree[head] = copy.deepcopy(value)
    else:
        tree[head] = _opened(head, tree.get(head, {}))
        _set(tree[head], rest, value)


def _opened(key: str, value: Any) -> dict[str, Any]:
    """A field as a mapping of its own, a shorthand written out."""
    if key == "model" and isinstance(value, str):
        return ModelSpec.from_shorthand(value)
    return dict(value) if isinstance(value, Mapping) else {}


def _route_tree(route: Any) -> dict[str, Any]:
    return dict(route) if isinstance(route, Mapping) else RouteSpec.from_shorthand(route)


def _unique(cells: Sequence[Cell]) -> list[Cell]:
    return list({repr(sorted(cell.items(), key=str)): cell for cell in cells}.values())


def label_of(key: str) -> str:
    """The short name of an axis: `route.start` is `start`."""
    return key.removeprefix("route.")


def show_cell(cell: Cell) -> str:
    """`start=3, end=2` for people."""
    return ", ".join(f"{label_of(key)}={value}" for key, value in cell.items()) or "the base run"
