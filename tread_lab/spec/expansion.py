"""A sweep becomes its trials: pure, ordered, baselines first, every hole counted and named."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tread_lab.spec.axes import cells_of, distinct, grid
from tread_lab.spec.cell import Cell, CellNames, label_of, show_cell
from tread_lab.spec.errors import UserError
from tread_lab.spec.evaluation import EvaluationSpec, decode_evaluations
from tread_lab.spec.expression import evaluate
from tread_lab.spec.fields import with_cell, with_fields
from tread_lab.spec.run import RunSpec
from tread_lab.spec.signature import signature
from tread_lab.spec.sweep import Experiment, SweepSpec
from tread_lab.spec.then import run_of

_EXAMPLES = 5


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
    base = with_fields(experiment.run, sweep.fixed, "fixed")
    run_of(base)
    named = {axis: list(names) for axis, names in sweep.variants.items()}
    variants = list(cells_of(named, "variants"))
    found = [{**v, **cell} for v in variants for cell in grid(sweep.axes, "axes")]

    def tree_of(cell: Cell) -> dict[str, Any]:
        return with_cell(base, cell, sweep.variants)

    cells, holes = _split(
        distinct(found), sweep.where, lambda cell: {**(facts or {}), **tree_of(cell)}
    )
    if not cells:
        raise UserError("where: no cell of the axes is left; loosen it")
    trials = [_trial(sweep, tree_of(cell), cell, seed) for seed in sweep.seeds for cell in cells]
    baselines = {trial.run: trial for trial, _ in trials if trial and trial.role == "baseline"}
    asked = experiment.evaluate if sweep.evaluate is None else sweep.evaluate
    samplers = grid(sweep.sampler_axes, "sampler_axes")
    evaluations = decode_evaluations(asked, experiment.sampler, cells=samplers)
    if sweep.sampler_axes and not any(spec.kind == "samples" for spec in evaluations):
        raise UserError("sampler_axes: there is no evaluation of samples; add e.g. fd@1k")
    return Expansion(
        trials=(*baselines.values(), *(trial for _, trial in trials)),
        holes=tuple(holes),
        evaluations=evaluations,
    )


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
    reference = run_of(with_fields(tree, sweep.baseline, "baseline"), "baseline")
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
        fields = CellNames(tree_of(cell), cell)
        rule = next((rule for rule in rules if not _meets(rule, fields)), None)
        (kept if rule is None else missed[rule]).append(cell)
    holes = [_hole(f"where: {rule}", missed[rule]) for rule in rules if missed[rule]]
    return kept, holes


def _meets(rule: str, fields: CellNames) -> bool:
    try:
        return bool(evaluate(rule, fields))
    except UserError as error:
        raise error.at("where") from None


def _hole(reason: str, cells: Sequence[Cell]) -> Hole:
    shown = ({label_of(k): v for k, v in cell.items()} for cell in cells[:_EXAMPLES])
    return Hole(reason, len(cells), tuple(shown))
