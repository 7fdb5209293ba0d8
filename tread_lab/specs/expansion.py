"""A sweep becomes its trials: pure, ordered, baselines first, every hole counted and named."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tread_lab.specs.axes import cell_of, check_count, distinct, grid
from tread_lab.specs.cell import Cell, CellNames, has_computed, labelled
from tread_lab.specs.errors import UserError, suggest
from tread_lab.specs.evaluation import EvaluationSpec, decode_evaluations
from tread_lab.specs.expression import evaluate
from tread_lab.specs.fields import check_field, run_of, with_cell, with_fields
from tread_lab.specs.labels import cell_text
from tread_lab.specs.sweep import Experiment, SweepSpec
from tread_lab.specs.trials import Setting, Trial, Trials

__all__ = ["Expansion", "Hole", "Trial", "expand"]

_EXAMPLES = 5


@dataclass(frozen=True)
class Hole:
    """Cells left out, or already there, for one reason."""

    reason: str
    count: int
    examples: tuple[Cell, ...]


@dataclass(frozen=True)
class Expansion:
    """All trials, baselines first.

    Attributes:
        holes: cells that miss an expression of `where`.
        duplicates: cells that are written twice, and cells that are the run of another one.
    """

    trials: tuple[Trial, ...]
    holes: tuple[Hole, ...]
    evaluations: tuple[EvaluationSpec, ...]
    duplicates: tuple[Hole, ...] = ()


def expand(
    sweep: SweepSpec, experiment: Experiment, facts: Mapping[str, Any] | None = None
) -> Expansion:
    """The trials of a sweep.

    Args:
        facts: further names that `where` may use, such as what the device can do.

    Raises:
        UserError: an unknown axis, an impossible cell that `where` does not exclude, no cell left.
    """
    base = with_fields(experiment.run, sweep.fixed, "fixed")
    if not has_computed(base):
        run_of(base)
    cells, again = _cells(sweep)
    check_count(len(cells) * len(sweep.seeds), "cells and seeds")
    make = Trials(base, sweep.baseline)
    settings, holes = _split(sweep, cells, make, facts or {})
    if not settings:
        missed = "; ".join(f"{hole.count} miss {hole.reason}" for hole in holes)
        raise UserError(f"where: no cell of the axes is left; loosen it ({missed})")
    pairs = [_pair(make, setting, seed) for seed in sweep.seeds for setting in settings]
    baselines = {before.run: before for before, _ in pairs if before is not None}
    twice = _hole("written again", again)
    return Expansion(
        trials=(*baselines.values(), *(trial for _, trial in pairs)),
        holes=tuple(holes),
        evaluations=_evaluations(sweep, experiment),
        duplicates=(*([twice] if again else []), *_shared(pairs[: len(settings)])),
    )


def _cells(sweep: SweepSpec) -> tuple[list[Cell], list[Cell]]:
    """The distinct cells of axes, variants and listed trials, and those that are written again."""
    variants: list[Cell] = [
        dict(zip(sweep.variants, names)) for names in itertools.product(*sweep.variants.values())
    ]
    found, again = distinct(grid(sweep.axes, "axes"))
    check_count(len(variants) * len(found), "axes and variants")
    crossed, _ = distinct([{**names, **cell} for names in variants for cell in found])
    if sweep.trials and not sweep.axes and not sweep.variants:
        crossed = []
    listed = [cell_of(fields, f"trials[{k}]") for k, fields in enumerate(sweep.trials)]
    _check_axes(found, sweep, "axes")
    _check_axes(listed, sweep, "trials")
    cells, once_more = distinct([*crossed, *listed])
    return cells, [*again, *once_more]


def _check_axes(cells: Sequence[Cell], sweep: SweepSpec, path: str) -> None:
    """Refuse what no run has, and variants that are not there."""
    for key in dict.fromkeys(key for cell in cells for key in cell):
        if key == "seed":
            raise UserError(f"{path}.seed: write `seeds: [0, 1]`, so that baselines have them too")
        if key in sweep.variants:
            for name in (cell[key] for cell in cells if key in cell):
                if name not in sweep.variants[key]:
                    known = map(str, sweep.variants[key])
                    raise UserError(f"{path}.{key}: no variant {name!r}{suggest(str(name), known)}")
            continue
        try:
            check_field(key)
        except UserError as error:
            raise error.at(f"{path}.{key}") from None


def _split(
    sweep: SweepSpec, cells: Iterable[Cell], make: Trials, facts: Mapping[str, Any]
) -> tuple[list[Setting], list[Hole]]:
    """Cells that meet every expression, and the others by the first expression they miss."""
    rules = [sweep.where] if isinstance(sweep.where, str) else list(sweep.where)
    kept: list[Setting] = []
    missed: dict[str, list[Cell]] = {rule: [] for rule in rules}
    for cell in cells:
        try:
            names = CellNames(with_cell(make.base, cell, sweep.variants), cell, facts)
            rule = next((rule for rule in rules if not _meets(rule, names)), None)
            if rule is None:
                kept.append(make.setting(names, cell))
            else:
                missed[rule].append({key: names.settled(value) for key, value in cell.items()})
        except _Where:
            raise
        except UserError as error:
            raise UserError(f"axes at {cell_text(cell)}: {error}") from None
    return kept, [_hole(f"where: {rule}", missed[rule]) for rule in rules if missed[rule]]


class _Where(UserError):
    """A mistake in `where` itself, whatever the cell."""


def _meets(rule: str, names: CellNames) -> bool:
    try:
        return bool(evaluate(rule, names))
    except UserError as error:
        raise _Where(f"where: {error}") from None


def _pair(make: Trials, setting: Setting, seed: int) -> tuple[Trial | None, Trial]:
    try:
        return make.pair(setting, seed)
    except UserError as error:
        place = cell_text(setting.cell)
        raise UserError(f"axes at {place}: {error}; leave it out by `where`") from None


def _shared(pairs: Sequence[tuple[Trial | None, Trial]]) -> Iterator[Hole]:
    """The cells of one seed that are the run of a baseline or of an earlier cell."""
    baselines = {before.run for before, _ in pairs if before is not None}
    seen: set[str] = set()
    dense: list[Cell] = []
    same: list[Cell] = []
    for _, trial in pairs:
        if trial.run in baselines:
            dense.append(trial.cell)
        elif trial.run in seen:
            same.append(trial.cell)
        seen.add(trial.run)
    for reason, cells in (("the run of a baseline", dense), ("the run of another cell", same)):
        if cells:
            yield _hole(reason, cells)


def _hole(reason: str, cells: Sequence[Cell]) -> Hole:
    return Hole(reason, len(cells), tuple(labelled(cell) for cell in cells[:_EXAMPLES]))


def _evaluations(sweep: SweepSpec, experiment: Experiment) -> tuple[EvaluationSpec, ...]:
    asked = experiment.evaluate if sweep.evaluate is None else sweep.evaluate
    samplers, _ = distinct(grid(sweep.sampler_axes, "sampler_axes"))
    evaluations = decode_evaluations(asked, experiment.sampler, cells=samplers)
    if sweep.sampler_axes and not any(spec.kind == "samples" for spec in evaluations):
        raise UserError("sampler_axes: there is no evaluation of samples; add e.g. fd@1k")
    return evaluations
