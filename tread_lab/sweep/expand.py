"""A sweep file becomes its trials: cells, matched steps, pairs with baselines, what is left out."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from tread_lab.config.decode import Positive, decode_value, encode
from tread_lab.config.errors import UserError, placed, shown
from tread_lab.config.evaluation import BASELINE, EvaluationSpec, decode_evaluations
from tread_lab.config.fields import (
    SHORT,
    dotted,
    has_computed,
    leaves_of,
    merged,
    names_of,
    routes_of,
    run_of,
    set_once,
)
from tread_lab.config.labels import Cell, ExcludedCells, Trial, cell_text, labelled
from tread_lab.config.run import BESIDE, RunSpec
from tread_lab.config.signature import signature
from tread_lab.config.sweep import (
    SPEND,
    STEPS,
    Experiment,
    SweepSpec,
    check_count,
    distinct,
    follows_length,
    grid,
    written_shares,
)
from tread_lab.sweep.expressions import CellNames, evaluate

Completion = Callable[[RunSpec], RunSpec]
Price = Callable[[RunSpec], float]  # what all training steps of a run cost
Pair = tuple[Trial[RunSpec] | None, Trial[RunSpec]]  # a baseline and its trial
Setting = tuple[Cell, dict[str, Any]]  # a cell and the tree of its run, both without expressions
_EXAMPLES = 5  # cells left out that are shown
_ROUNDED = 8  # steps within which rounded phases may cost less for more steps


@dataclass(frozen=True)
class Expansion:
    """All trials, baselines first, then their controls.

    Attributes:
        excluded: cells excluded by `where`.
    """

    trials: tuple[Trial[RunSpec], ...]
    excluded: tuple[ExcludedCells, ...]
    evaluations: tuple[EvaluationSpec, ...]


def expand(
    sweep: SweepSpec,
    experiment: Experiment,
    facts: Mapping[str, Any] | None = None,
    price: Price | None = None,
    whole: Completion = lambda spec: spec,
) -> Expansion:
    """Return the trials of a sweep, baselines first.

    Args:
        facts: further names for `where`, such as `device.precisions`.
        price: cost of a run in terms of `match`.
        whole: completes each run before its signature is computed.

    Raises:
        UserError: an unknown axis, an impossible cell that `where` does not exclude, no cell left.
    """
    base = merged(RunSpec, experiment.run, sweep.fixed)
    placed_routes = all({"start", "end"} <= {*route} for route in routes_of(base.get("routes", ())))
    if placed_routes and not has_computed(base):
        run_of(base)  # a mistake of every cell is none of the first
    settings, excluded = _settings(sweep, experiment.run, _cells(sweep), facts or {})
    runs = _Runs(price if sweep.match else None, whole)
    pairs, controls = list[Pair](), dict[tuple[str, str | None], Trial[RunSpec]]()
    for seed, (cell, plain) in itertools.product(sweep.seeds, settings):
        tree, spend = {**plain, "seed": seed}, cell.get(SPEND, 1)
        with _at_cell(cell, ". Exclude such cells by `where`."):
            dense = _dense(sweep.baseline, cell, tree)
            pairs.append(runs.pair("trial", labelled(cell), tree, dense, spend))
        for number, control in enumerate(sweep.controls):
            assert dense is not None
            fields = CellNames(dense, {}).settled(leaves_of(control))
            with placed(f"controls[{number}]"):
                own = merged(RunSpec, dense, fields)
                _, trial = runs.pair("control", fields, own, dense, spend)
                if trial.run == trial.baseline:
                    raise UserError(f"must differ from the baseline, got {shown(control)}")
            controls[trial.run, trial.baseline] = trial
    baselines = {baseline.run: baseline for baseline, _ in pairs if baseline is not None}
    return Expansion(
        trials=(*baselines.values(), *controls.values(), *(trial for _, trial in pairs)),
        excluded=tuple(excluded),
        evaluations=_evaluations(sweep, experiment, pairs, [tree for _, tree in settings]),
    )


def _cells(sweep: SweepSpec) -> list[Cell]:
    """Return the distinct cells of axes, variants and listed trials."""
    variants: list[Cell] = [
        dict(zip(sweep.variants, names)) for names in itertools.product(*sweep.variants.values())
    ]
    of_axes = distinct(grid(sweep.axes, "axes"))
    check_count(len(variants) * len(of_axes), "axes and variants")
    crossed = distinct([{**names, **cell} for names in variants for cell in of_axes])
    if sweep.trials and not sweep.axes and not sweep.variants:
        crossed = []
    cells = distinct([*crossed, *(dict(dotted(cell)) for cell in sweep.trials)])
    check_count(len(cells) * len(sweep.seeds), "cells and seeds")
    return cells


def _settings(
    sweep: SweepSpec, run: Mapping[str, Any], cells: Sequence[Cell], facts: Mapping[str, Any]
) -> tuple[list[Setting], list[ExcludedCells]]:
    """Split cells into those that meet every expression of `where`, and holes by the first one that
    they miss.

    What is fixed of a system, such as `repa.weight`, is for the cells that have the system where
    some of them bring it and the experiment does not. A system that is fixed as a whole
    (`repa: {...}`) is for all.
    """
    missed: dict[str, list[Cell]] = {rule: [] for rule in sweep.where or ()}
    kept, fixed = list[Setting](), leaves_of(sweep.fixed)
    places = dict.fromkeys(names_of(fixed), "fixed")
    fields = [_fields(cell, sweep.variants, dict(places)) for cell in cells]
    brought = [{name.partition(".")[0] for name in own} for own in fields]
    partly = set().union(*brought) & {name for name in BESIDE if run.get(name) is None} - {*fixed}
    for cell, own, heads in zip(cells, fields, brought):
        of_cell = {k: v for k, v in fixed.items() if k.partition(".")[0] not in partly - heads}
        with _at_cell(cell):
            tree = merged(RunSpec, run, {**of_cell, **own})
        names = CellNames(tree, cell, facts)
        with placed("where"):
            rule = next((x for x in sweep.where or () if not evaluate(x, names)), None)
        with _at_cell(cell):
            computed = cell if not has_computed(cell) else names.settled(cell)
            if rule is not None:
                missed[rule].append(labelled(computed))
            else:
                kept.append((computed, names.settled(tree) if has_computed(tree) else tree))
    holes = [
        ExcludedCells(rule, len(cells), tuple(cells[:_EXAMPLES]))
        for rule, cells in missed.items()
        if cells
    ]
    if not kept:
        why = "; ".join(f"{hole.count} excluded by {hole.rule}" for hole in holes)
        raise UserError(f"where: must keep at least one cell, got none. Loosen it ({why}).")
    return kept, holes


def _fields(cell: Cell, variants: Mapping[str, Any], places: dict[str, str]) -> dict[str, Any]:
    """Return the dotted fields of a run that a cell sets, those of its variants, too.

    Args:
        places: field -> where it is set; two places may not set one field.
    """
    fields = dict[str, Any]()
    for axis, value in cell.items():
        chosen = variants[axis][value] if axis in variants else {axis: value}
        own = leaves_of(chosen) if axis != SPEND else {}
        place = f"variants.{axis}.{value}" if axis in variants else axis
        set_once(places, names_of(own), place)
        for name in (name for name, leaf in own.items() if leaf is None):
            parts = [part for part in places if part.startswith(f"{name}.")]
            set_once(places, parts, place)  # nothing has no parts
        fields |= own
    return fields


class _Runs:
    """Makes the trials of one sweep.

    Args:
        price: of a run; every trial has the steps that cost what its baseline costs. `None` leaves
            the steps as they are written.
        whole: completes a run, by what no file says, before it is signed.
    """

    def __init__(self, price: Price | None, whole: Completion) -> None:
        self._price, self._whole = price, whole
        self._runs = dict[str, tuple[RunSpec, str]]()

    def pair(
        self, role: str, cell: Cell, tree: dict[str, Any], dense: dict[str, Any] | None, spend: Any
    ) -> Pair:
        """Return the baseline of the tree `dense` (or `None`) and the trial of `tree`.

        Args:
            spend: multiples of the baseline's cost, for both.

        Raises:
            UserError: one of them is not a valid run.
        """
        seed = tree["seed"]
        if dense is None:
            return None, Trial(role, cell, seed, *self._run(tree), None)
        if self._price is not None:
            tree, dense = self._matched(tree, dense, decode_value(Positive, spend, SPEND))
        base = self._run(dense, "baseline")
        trial = Trial(role, cell, seed, *self._run(tree), base[1])
        return Trial("baseline", {}, seed, *base, None), trial

    def _matched(
        self, tree: dict[str, Any], dense: dict[str, Any], spend: float
    ) -> tuple[dict[str, Any], dict[str, Any]]:
        """Return the trees of a run and of its baseline, which spend the same."""
        price, base = self._price, self._run(dense, "baseline")[0]
        assert price is not None
        if self._run(tree)[0].parent is not None or base.parent is not None:
            raise UserError(
                "match: must not be combined with `then`, whose parent's cost is not counted"
            )
        if not base.train.steps:
            raise UserError("match: requires a baseline that trains, got 0 steps")
        dense = _with_steps(dense, max(1, round(spend * base.train.steps)))
        base = self._run(dense)[0]
        steps = matched_steps(
            lambda steps: price(self._run(_with_steps(tree, steps))[0]),
            price(base),
            base.train.steps,
        )
        return _with_steps(tree, steps), dense

    def _run(self, tree: Mapping[str, Any], path: str = "") -> tuple[RunSpec, str]:
        """Return the run of a tree and its name."""
        key = repr(tree)
        if key not in self._runs:
            spec = self._whole(run_of(tree, path))
            self._runs[key] = spec, signature(spec)
        return self._runs[key]


def matched_steps(price: Callable[[int], float], spent: float, steps: int) -> int:
    """Return the number of steps with the cost nearest to `spent`.

    Args:
        price: cost of a run by its steps; increasing, up to rounding of phases.
        steps: where the search starts, at least 1.
    """
    low = high = max(1, round(steps * spent / price(steps)))  # where all steps cost the same
    width = 1
    while low > 1 and price(low) > spent:
        low, width = max(1, low - width), 2 * width
    width = 1
    while price(high) < spent:
        high, width = high + width, 2 * width
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if price(middle) < spent else (low, middle)

    def nearest(around: int) -> int:
        counts = range(max(1, low - around), high + around + 1)
        return min(counts, key=lambda count: abs(price(count) - spent))

    found = nearest(1)
    half_a_step = price(found) / found / 2
    return found if abs(price(found) - spent) <= half_a_step else nearest(_ROUNDED)


def _dense(
    baseline: Mapping[str, Any] | None, cell: Cell, tree: dict[str, Any]
) -> dict[str, Any] | None:
    """Return the tree of the baseline of a cell; `None` for no baseline."""
    if baseline is None:
        return None
    fields = CellNames(tree, cell).settled(baseline)
    with placed("baseline"):
        dense = leaves_of(fields).get("routes") == []
        return merged(RunSpec, _without_routes(tree) if dense else tree, fields)


def _without_routes(tree: dict[str, Any]) -> dict[str, Any]:
    """Return a tree whose phases of `then` have no routes, however they write them."""
    if not isinstance(tree.get("then"), Mapping):
        return tree
    then = merged(None, {}, tree["then"])
    kept = {name: value for name, value in then.items() if name not in ("routes", *SHORT)}
    return {**tree, "then": _without_routes({**kept, "routes": []})}


def _with_steps(tree: Mapping[str, Any], steps: int) -> dict[str, Any]:
    return merged(RunSpec, tree, {STEPS: steps})


def _evaluations(
    sweep: SweepSpec, experiment: Experiment, pairs: Sequence[Pair], trees: Sequence[Any]
) -> tuple[EvaluationSpec, ...]:
    """Return the evaluations of every run; the step `baseline` as a number, or as the end."""
    written = experiment.evaluate if sweep.evaluate is None else sweep.evaluate
    samplers = distinct(grid(sweep.sampler_axes, "sampler_axes"))
    evaluations = decode_evaluations(written, experiment.usual, cells=samplers)
    if sweep.sampler_axes and not any(spec.kind == "samples" for spec in evaluations):
        raise UserError("sampler_axes: requires an evaluation of samples. Try evaluate=[fd@1k].")
    if not any(spec.step == BASELINE for spec in evaluations):
        return evaluations
    step = None if sweep.match is None else _baseline_step(pairs, trees)
    at = (replace(spec, step=step) if spec.step == BASELINE else spec for spec in evaluations)
    return tuple(dict.fromkeys(at))


def _baseline_step(pairs: Sequence[Pair], trees: Sequence[Any]) -> int:
    """Return the step `at baseline`: the one at which the baselines of all trials end.

    Raises:
        UserError: they end at several, or an earlier step of a trial is no shorter run.
    """
    ends, shares = set[int](), written_shares(trees)
    for baseline, trial in pairs:
        assert baseline is not None
        ends.add(baseline.steps)
        follows = follows_length(encode(trial.spec), shares)
        if follows := follows or follows_length(encode(baseline.spec), ()):
            raise UserError(
                f"evaluate: `at {BASELINE}` requires settings that do not follow the length of the"
                f" run, got {follows}. Try `fixed: {{train: {{schedule: constant, ema: 0.97}}}}`,"
                " with steps instead of shares."
            )
    if len(ends) != 1:
        some = ", ".join(map(str, sorted(ends)))
        raise UserError(
            f"evaluate: `at {BASELINE}` requires baselines of equal length, got {some} steps. Try"
            " one train.steps for all."
        )
    return ends.pop()


@contextlib.contextmanager
def _at_cell(cell: Cell, remedy: str = "") -> Iterator[None]:
    """Put the axis values of a cell in front of a mistake that it alone makes."""
    try:
        yield
    except UserError as error:
        lines = (f"{line.removesuffix('.')}{remedy}" for line in error.args)
        raise UserError(*lines).at(f"axes at {cell_text(cell)}") from None
