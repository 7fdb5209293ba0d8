"""A sweep becomes its trials: pure, ordered, baselines first, every hole counted and named."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from tread_lab.specs.axes import cell_of, check_count, distinct, grid
from tread_lab.specs.cell import Cell, CellNames, Trial, evaluate, has_computed, labelled
from tread_lab.specs.errors import UserError, suggest
from tread_lab.specs.evaluation import BASELINE, EvaluationSpec
from tread_lab.specs.evaluation_text import decode_evaluations
from tread_lab.specs.fields import (
    check_field,
    leaves_of,
    parts_set,
    routes_of,
    run_of,
    with_cell,
    with_fields,
)
from tread_lab.specs.labels import cell_text
from tread_lab.specs.run import BESIDE, RunSpec
from tread_lab.specs.sweep import Experiment, SweepSpec
from tread_lab.specs.trials import (
    SPEND,
    Completion,
    OtherData,
    Price,
    Trials,
    baseline_step,
    check_axis,
)

Pair = tuple[Trial[RunSpec] | None, Trial[RunSpec]]  # a baseline and its trial
_EXAMPLES = 5


@dataclass(frozen=True)
class ExcludedCells:
    """Cells left out, or already there, for one reason."""

    reason: str
    count: int
    examples: tuple[Cell, ...]

    @property
    def why(self) -> str:
        """The reason in words; of a `where`, the expression that the others satisfy."""
        _, where, rule = self.reason.partition("where: ")
        return f"`where` keeps only {rule}" if where else f"{self.reason}, so nothing runs twice"


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
    base = with_fields(experiment.run, sweep.fixed, "fixed")
    placed = all({"start", "end"} <= route.keys() for route in routes_of(base.get("routes") or []))
    if placed and not has_computed(base):
        run_of(base)
    cells, repeated = _cells(sweep)
    check_count(len(cells) * len(sweep.seeds), "cells and seeds")
    assert price is not None or sweep.match is None
    make = Trials(base, sweep.baseline, price if sweep.match else None, whole)
    settings, holes = _split(sweep, cells, experiment.run, base, facts or {})
    if not settings:
        missed = "; ".join(f"{hole.count} miss {hole.reason}" for hole in holes)
        raise UserError(f"where: no cell of the axes is left; loosen it ({missed})")
    seeded = [(*setting, seed) for seed in sweep.seeds for setting in settings]
    pairs = [_pair(make, *one) for one in seeded]
    _check_effects([trial for _, trial in pairs[: len(settings)]])
    baselines = {baseline.run: baseline for baseline, _ in pairs if baseline is not None}
    controls = {
        (control.run, control.baseline): control
        for one in (seeded if sweep.controls else ())
        for control in make.controls(sweep.controls, *one)
    }
    runs = ((trial.spec, dense.spec) for dense, trial in pairs if dense is not None)
    trees = (tree for _, tree in settings)
    return Expansion(
        trials=(*baselines.values(), *controls.values(), *(trial for _, trial in pairs)),
        excluded=tuple(holes),
        evaluations=_at_baseline(_evaluations(sweep, experiment), sweep.match, runs, trees),
        duplicates=(*_holes({"written again": repeated}), *_shared(pairs[: len(settings)])),
    )


def _check_effects(trials: Sequence[Trial[RunSpec]]) -> None:
    """Refuse an axis that never makes another run, such as `fp32_block` in fp32."""
    for axis in dict.fromkeys(axis for trial in trials for axis in trial.cell):
        runs: dict[str, set[str]] = {}  # by the other axes
        values: dict[str, set[str]] = {}
        for trial in trials:
            others = repr({name: value for name, value in trial.cell.items() if name != axis})
            runs.setdefault(others, set()).add(trial.run)
            values.setdefault(others, set()).add(repr(trial.cell.get(axis)))
        if max(map(len, values.values())) > 1 == max(map(len, runs.values())):
            raise UserError(f"{axis}: has no effect here, all its cells are one run. Leave it out.")


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
    listed = [cell_of(fields, f"trials[{k}]") for k, fields in enumerate(sweep.trials)]
    for axis, fields in sweep.variants.items():
        check_axis(axis, fields, f"variants.{axis}", sweep.match)
    for number, control in enumerate(sweep.controls):
        check_axis("", control, f"controls[{number}]", sweep.match)
    _check_axes(of_axes, sweep, "axes")
    _check_axes(listed, sweep, "trials")
    cells, listed_again = distinct([*crossed, *listed])
    _check_seeds(sweep)
    return cells, [*repeated, *listed_again]


def _check_seeds(sweep: SweepSpec) -> None:
    """Refuse a seed beside `seeds`, which a trial and its baseline share."""
    places = {"fixed": sweep.fixed, "baseline": sweep.baseline or {}}
    places |= {f"controls[{number}]": fields for number, fields in enumerate(sweep.controls)}
    for axis, variants in sweep.variants.items():
        places |= {f"variants.{axis}.{name}": fields for name, fields in variants.items()}
    for path, fields in places.items():
        if "seed" in leaves_of(fields):
            raise _seed_at(path)


def _seed_at(path: str) -> UserError:
    return UserError(f"{path}.seed: write `seeds: [0, 1]`, so that baselines have them too")


def _check_axes(cells: Sequence[Cell], sweep: SweepSpec, path: str) -> None:
    """Refuse fields that no run has, and unknown variants."""
    for key in dict.fromkeys(key for cell in cells for key in cell):
        if key == "seed":
            raise _seed_at(path)
        if key in sweep.variants:
            for name in (cell[key] for cell in cells if key in cell):
                if name not in sweep.variants[key]:
                    near = suggest(str(name), map(str, sweep.variants[key]))
                    raise UserError(f"{path}.{key}: no variant {name!r}{near}")
            continue
        check_axis(key, {key: None}, f"{path}.{key}", sweep.match)
        try:
            if key != SPEND:
                check_field(key)
        except UserError as error:
            raise error.at(f"{path}.{key}") from None


def _split(
    sweep: SweepSpec,
    cells: Sequence[Cell],
    run: Mapping[str, Any],
    base: Mapping[str, Any],
    facts: Mapping[str, Any],
) -> tuple[list[tuple[Cell, dict[str, Any]]], list[ExcludedCells]]:
    """Split cells into those that meet every expression and holes by the first one they miss.

    What is fixed of a system, such as `repa.weight`, is for the cells that have the system where
    some of them bring it and `run`, the experiment's, does not. A system that is fixed as a whole
    (`repa: {...}`) is for all.
    """
    rules = [sweep.where] if isinstance(sweep.where, str) else list(sweep.where or ())
    kept: list[tuple[Cell, dict[str, Any]]] = []
    missed: dict[str, list[Cell]] = {f"where: {rule}": [] for rule in rules}
    fixed = leaves_of(sweep.fixed)
    written = [{key: value for key, value in cell.items() if key != SPEND} for cell in cells]
    partly = {name for name in BESIDE if run.get(name) is None and name not in sweep.fixed}
    partly &= base.keys()
    brought = [partly and partly & parts_set(fields, sweep.variants) for fields in written]
    some = set().union(*brought)
    for cell, fields, own in zip(cells, written, brought):
        try:
            tree = {name: value for name, value in base.items() if name not in some - own}
            tree = with_cell(tree, fields, sweep.variants, fixed)
            names = CellNames(tree, cell, facts)
            rule = next((rule for rule in rules if not _meets(rule, names)), None)
            if rule is None:
                kept.append((names.settled(cell), names.settled(names.tree)))
            else:
                missed[f"where: {rule}"].append(
                    {key: names.settled(value) for key, value in cell.items()}
                )
        except _Where:
            raise
        except UserError as error:
            raise UserError(f"axes at {cell_text(cell)}: {error}") from None
    return kept, _holes(missed)


class _Where(UserError):
    """A mistake in `where` itself, whatever the cell."""


def _meets(rule: str, names: CellNames) -> bool:
    try:
        return bool(evaluate(rule, names))
    except UserError as error:
        raise _Where(f"where: {error}") from None


def _pair(make: Trials, cell: Cell, tree: dict[str, Any], seed: int) -> Pair:
    try:
        return make.pair(cell, tree, seed)
    except OtherData:
        raise
    except UserError as error:
        place = cell_text(cell)
        raise UserError(f"axes at {place}: {error}; leave it out by `where`") from None


def _shared(pairs: Sequence[Pair]) -> list[ExcludedCells]:
    """Return the cells of one seed that are the run of a baseline or of an earlier cell."""
    of_baselines = {baseline.run for baseline, _ in pairs if baseline is not None}
    first_cells: dict[str, Cell] = {}
    shared: dict[str, list[Cell]] = {"the run of a baseline": [], "the run of another cell": []}
    for _, trial in pairs:
        if trial.run in of_baselines:
            shared["the run of a baseline"].append(trial.cell)
        elif first_cells.setdefault(trial.run, trial.cell) is not trial.cell:
            shared["the run of another cell"].append(trial.cell)
    return _holes(shared)


def _holes(by_reason: Mapping[str, Sequence[Cell]]) -> list[ExcludedCells]:
    return [
        ExcludedCells(reason, len(cells), tuple(labelled(cell) for cell in cells[:_EXAMPLES]))
        for reason, cells in by_reason.items()
        if cells
    ]


def _evaluations(sweep: SweepSpec, experiment: Experiment) -> tuple[EvaluationSpec, ...]:
    written = experiment.evaluate if sweep.evaluate is None else sweep.evaluate
    samplers, _ = distinct(grid(sweep.sampler_axes, "sampler_axes"))
    evaluations = decode_evaluations(written, experiment.usual, cells=samplers)
    if sweep.sampler_axes and not any(spec.kind == "samples" for spec in evaluations):
        raise UserError("sampler_axes: there is no evaluation of samples; add e.g. fd@1k")
    return evaluations


def _at_baseline(
    evaluations: tuple[EvaluationSpec, ...],
    match: str | None,
    runs: Iterable[tuple[RunSpec, RunSpec]],
    trees: Iterable[Mapping[str, Any]],
) -> tuple[EvaluationSpec, ...]:
    """Return the evaluations with the step `baseline` as a number, or as the end where it is."""
    if not any(spec.step == BASELINE for spec in evaluations):
        return evaluations
    step = None if match is None else baseline_step(runs, trees)
    at = (replace(spec, step=step) if spec.step == BASELINE else spec for spec in evaluations)
    return tuple(dict.fromkeys(at))
