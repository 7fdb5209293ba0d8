"""A sweep file becomes its trials: cells, matched steps, pairs with baselines, what is left out."""

from __future__ import annotations

import contextlib
import itertools
import re
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from tread_lab.config.cell import Cell, ExcludedCells, SharedParts, Trial, labelled
from tread_lab.config.decode import Positive, decode_value, encode
from tread_lab.config.errors import UserError, placed, shown
from tread_lab.config.evaluation import BASELINE, EvaluationSpec, decode_evaluations
from tread_lab.config.fields import (
    dotted,
    has_computed,
    leaves_of,
    merged,
    names_of,
    routes_of,
    run_of,
    set_once,
)
from tread_lab.config.labels import cell_text
from tread_lab.config.lengths import SPEND, STEPS, follows_length, written_shares
from tread_lab.config.run import BESIDE, RunSpec
from tread_lab.config.signature import signature
from tread_lab.config.sweep import Experiment, SweepSpec, check_count, distinct, grid
from tread_lab.sweep.expressions import CellNames, evaluate
from tread_lab.sweep.match import Price, matched_steps

Completion = Callable[[RunSpec], RunSpec]
Pair = tuple[Trial[RunSpec] | None, Trial[RunSpec]]  # a baseline and its trial
Setting = tuple[Cell, dict[str, Any]]  # a cell and the tree of its run, both without expressions
_EXAMPLES = 5  # cells left out that are shown
_ROUTES = re.compile(r"((?:then\.)*)(routes|route|rate)(\.|$)")  # what says a phase's routes


@dataclass(frozen=True)
class Expansion:
    """All trials, baselines first, then their controls.

    Attributes:
        excluded: cells that miss an expression of `where`.
        duplicates: cells that are written twice, and cells that are the run of another one.
    """

    trials: tuple[Trial[RunSpec], ...]
    excluded: tuple[ExcludedCells, ...]
    evaluations: tuple[EvaluationSpec, ...]
    duplicates: tuple[ExcludedCells, ...] = ()


def expand(
    sweep: SweepSpec,
    experiment: Experiment,
    facts: Mapping[str, Any] | None = None,
    price: Price | None = None,
    whole: Completion = lambda spec: spec,
) -> Expansion:
    """Return the trials of a sweep, baselines first.

    Args:
        facts: further names that `where` may use, such as what the device can do.
        price: what a run spends of that which the sweep's `match` names.
        whole: completes each run before it is signed.

    Raises:
        UserError: an unknown axis, an impossible cell that `where` does not exclude, no cell left.
    """
    base = merged(RunSpec, experiment.run, sweep.fixed)
    placed_routes = all({"start", "end"} <= {*route} for route in routes_of(base.get("routes", ())))
    if placed_routes and not has_computed(base):
        run_of(base)  # a mistake of every cell is none of the first
    cells, repeated = _cells(sweep)
    settings, excluded = _settings(sweep, experiment.run, cells, facts or {})
    runs = _Runs(sweep.baseline, price if sweep.match else None, whole)
    seeded = [(cell, {**tree, "seed": s}) for s in sweep.seeds for cell, tree in settings]
    pairs = [runs.pair(*setting) for setting in seeded]
    of_one_seed = pairs[: len(settings)]
    baselines = {baseline.run: baseline for baseline, _ in pairs if baseline is not None}
    controls = {
        (control.run, control.baseline): control
        for setting in (seeded if sweep.controls else ())
        for control in runs.controls(sweep.controls, *setting)
    }
    return Expansion(
        trials=(*baselines.values(), *controls.values(), *(trial for _, trial in pairs)),
        excluded=tuple(excluded),
        evaluations=_evaluations(sweep, experiment, pairs, [tree for _, tree in settings]),
        duplicates=(*_left_out({"written again": repeated}), *_shared(of_one_seed)),
    )


def _cells(sweep: SweepSpec) -> tuple[list[Cell], list[Cell]]:
    """Return the distinct cells of axes, variants and listed trials, and the repeated cells."""
    variants: list[Cell] = [
        dict(zip(sweep.variants, names)) for names in itertools.product(*sweep.variants.values())
    ]
    of_axes, repeated = distinct(grid(sweep.axes, "axes"))
    check_count(len(variants) * len(of_axes), "axes and variants")
    crossed, _ = distinct([{**names, **cell} for names in variants for cell in of_axes])
    if sweep.trials and not sweep.axes and not sweep.variants:
        crossed = []
    cells, listed_again = distinct([*crossed, *(dict(dotted(cell)) for cell in sweep.trials)])
    check_count(len(cells) * len(sweep.seeds), "cells and seeds")
    return cells, [*repeated, *listed_again]


def _settings(
    sweep: SweepSpec, run: Mapping[str, Any], cells: Sequence[Cell], facts: Mapping[str, Any]
) -> tuple[list[Setting], list[ExcludedCells]]:
    """Split cells into those that meet every expression of `where`, and holes by the first one that
    they miss.

    What is fixed of a system, such as `repa.weight`, is for the cells that have the system where
    some of them bring it and the experiment does not. A system that is fixed as a whole
    (`repa: {...}`) is for all.
    """
    rules = [sweep.where] if isinstance(sweep.where, str) else list(sweep.where or ())
    missed: dict[str, list[Cell]] = {f"where: {rule}": [] for rule in rules}
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
            rule = next((rule for rule in rules if not evaluate(rule, names)), None)
        with _at_cell(cell):
            computed = cell if not has_computed(cell) else names.settled(cell)
            if rule is not None:
                missed[f"where: {rule}"].append(computed)
            else:
                kept.append((computed, names.settled(tree) if has_computed(tree) else tree))
    holes = _left_out(missed)
    if not kept:
        why = "; ".join(f"{hole.count} excluded by {hole.reason}" for hole in holes)
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
        baseline: fields that turn a trial's tree into that of its baseline; `None` for no baseline.
        price: of a run; every trial has the steps that cost what its baseline costs. `None` leaves
            the steps as they are written.
        whole: completes a run, by what no file says, before it is signed.
    """

    def __init__(
        self, baseline: Mapping[str, Any] | None, price: Price | None, whole: Completion
    ) -> None:
        self._baseline, self._price, self._whole = baseline, price, whole
        self._shared, self._runs = SharedParts(), dict[str, tuple[RunSpec, str]]()

    def pair(self, cell: Cell, tree: dict[str, Any]) -> Pair:
        """Return the baseline of a cell, or `None`, and the cell's trial.

        Raises:
            UserError: the cell is no possible run, or its baseline is none.
        """
        labels, seed = labelled(cell), tree["seed"]
        with _at_cell(cell, ". Exclude such cells by `where`."):
            if self._baseline is None:
                return None, Trial("trial", labels, seed, *self._run(tree), None)
            tree, dense = self._matched(tree, self._dense(cell, tree), cell)
            run = self._run(dense, "baseline")
            trial = Trial("trial", labels, seed, *self._run(tree), run[1])
            return Trial("baseline", {}, seed, *run, None), trial

    def controls(
        self, controls: Sequence[Mapping[str, Any]], cell: Cell, tree: dict[str, Any]
    ) -> Iterator[Trial[RunSpec]]:
        """Yield the controls of a cell's baseline, compared as trials are.

        Args:
            controls: fields that turn the baseline into a control.

        Raises:
            UserError: a control is no possible run, or is the baseline.
        """
        dense = self._dense(cell, tree)
        for number, control in enumerate(controls):
            path = f"controls[{number}]"
            fields = CellNames(dense, {}).settled(leaves_of(control))
            with placed(path):
                changed = merged(RunSpec, dense, fields)
            own, base = self._matched(changed, dense, cell)
            run, baseline = self._run(own, path), self._run(base, "baseline")[1]
            if run[1] == baseline:
                raise UserError(f"{path}: must change the baseline, got {shown(control)}")
            yield Trial("control", fields, tree["seed"], *run, baseline)

    def _dense(self, cell: Cell, tree: dict[str, Any]) -> dict[str, Any]:
        """Return the tree of the baseline of a cell."""
        fields = CellNames(tree, cell).settled(self._baseline)
        with placed("baseline"):
            return merged(RunSpec, _as_dense(tree, fields), fields)

    def _matched(
        self, tree: dict[str, Any], dense: dict[str, Any], cell: Cell
    ) -> tuple[dict[str, Any], dict[str, Any]]:
        """Return the trees of a run and of its baseline, which spend the same under `match`."""
        price = self._price
        if price is None:
            return tree, dense
        spend = decode_value(Positive, cell.get(SPEND, 1), SPEND)
        base = self._run(dense, "baseline")[0]
        if self._run(tree)[0].parent is not None or base.parent is not None:
            raise UserError("match: what a parent spent is not counted; leave out `then`")
        if spend != 1:
            dense = _with_steps(dense, max(1, round(spend * base.train.steps)))
            base = self._run(dense, "baseline")[0]
        if not base.train.steps:
            raise UserError("match: the baseline trains no step")
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
            spec = run_of(tree, path) if "then" in tree else self._shared.run(tree, path)
            spec = self._whole(spec)
            self._runs[key] = spec, signature(spec)
        return self._runs[key]


def _as_dense(tree: dict[str, Any], baseline: Mapping[str, Any]) -> dict[str, Any]:
    """Return the tree that a baseline changes; one without routes has none in a phase of `then`
    either, however that writes them."""
    then = tree.get("then")
    if leaves_of(baseline).get("routes") != [] or not isinstance(then, Mapping):
        return tree
    kept: dict[str, Any] = {}
    for name, leaf in leaves_of(then).items():
        routes = _ROUTES.match(name)  # a phase that says nothing else is still a phase
        kept |= {f"{routes[1]}routes": []} if routes else {name: leaf}
    return {**tree, "then": kept}


def _with_steps(tree: Mapping[str, Any], steps: int) -> dict[str, Any]:
    return merged(RunSpec, tree, {STEPS: steps})


def _shared(pairs: Sequence[Pair]) -> list[ExcludedCells]:
    """Return the cells of one seed that are the run of a baseline or of an earlier cell."""
    seen = {baseline.run: "the run of a baseline" for baseline, _ in pairs if baseline is not None}
    shared = defaultdict[str, list[Cell]](list)
    for _, trial in pairs:
        if trial.run in seen:
            shared[seen[trial.run]].append(trial.cell)
        seen.setdefault(trial.run, "the run of another cell")
    return _left_out(dict(sorted(shared.items())))


def _left_out(by_reason: Mapping[str, Sequence[Cell]]) -> list[ExcludedCells]:
    return [
        ExcludedCells(reason, len(cells), tuple(labelled(cell) for cell in cells[:_EXAMPLES]))
        for reason, cells in by_reason.items()
        if cells
    ]


def _evaluations(
    sweep: SweepSpec, experiment: Experiment, pairs: Sequence[Pair], trees: Sequence[Any]
) -> tuple[EvaluationSpec, ...]:
    """Return the evaluations of every run; the step `baseline` as a number, or as the end."""
    written = experiment.evaluate if sweep.evaluate is None else sweep.evaluate
    samplers, _ = distinct(grid(sweep.sampler_axes, "sampler_axes"))
    evaluations = decode_evaluations(written, experiment.usual, cells=samplers)
    if sweep.sampler_axes and not any(spec.kind == "samples" for spec in evaluations):
        raise UserError("sampler_axes: there is no evaluation of samples; add e.g. fd@1k")
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
                f"evaluate: `at {BASELINE}` compares at equal steps, and under {follows} an"
                " earlier step is no shorter run; say `fixed: {train: {schedule: constant,"
                " ema: 0.97}}`, and write shares as steps"
            )
    if len(ends) != 1:
        some = ", ".join(map(str, sorted(ends)))
        raise UserError(f"evaluate: `at {BASELINE}` needs one length of baselines, got {some}")
    return ends.pop()


@contextlib.contextmanager
def _at_cell(cell: Cell, remedy: str = "") -> Iterator[None]:
    """Put the axis values of a cell in front of a mistake that it alone makes."""
    try:
        yield
    except UserError as error:
        lines = (f"{line.removesuffix('.')}{remedy}" for line in error.args)
        raise UserError(*lines).at(f"axes at {cell_text(cell)}") from None
