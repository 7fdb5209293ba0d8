"""What a sweep file says, and the experiment it starts from."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from tread_lab.specs.axes import numbers
from tread_lab.specs.budget import BudgetSpec
from tread_lab.specs.errors import UserError
from tread_lab.specs.search import SearchSpec
from tread_lab.specs.stop_early import StopEarlySpec

if TYPE_CHECKING:
    Seeds = tuple[int, ...]
else:
    Seeds = tuple[int, ...] | str  # a range is opened at once


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
        axes: field -> values; a mapping is a grid over its keys, a list of axes several grids; the
            axes under a key `zip` vary together.
        trials: further cells, each written out as {field: value}.
        where: expressions that a cell must meet; the others are holes.
        seeds: every cell and its baseline run once per seed; a list, or a range such as `0..4`.
        evaluate: evaluations of every run; the experiment's where absent.
        sampler_axes: field of the sampler -> values, written as `axes` are; every evaluation of
            samples is made with each of them, on the same trained runs.
        search: how cells are chosen one after another; absent, every cell is run.
        stop_early: ends trials that are worse than the others after a few steps.
        budget: what may be spent; what does not fit is not started, and more may be given later.
    """

    experiment: str
    question: str = ""
    fixed: dict[str, Any] = field(default_factory=dict)
    baseline: dict[str, Any] | None = field(default_factory=lambda: {"routes": []})
    variants: dict[str, Any] = field(default_factory=dict)
    axes: Any = field(default_factory=dict)
    trials: tuple[dict[str, Any], ...] = ()
    where: tuple[str, ...] | str = ()
    seeds: Seeds = (0,)
    evaluate: tuple[Any, ...] | None = None
    sampler_axes: Any = field(default_factory=dict)
    search: SearchSpec | None = None
    budget: BudgetSpec | None = None
    stop_early: StopEarlySpec | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "seeds", _seeds(self.seeds))
        object.__setattr__(self, "variants", dict(_variants(self.variants)))


def _seeds(seeds: Any) -> tuple[int, ...]:
    found = tuple(numbers(seeds, "seeds")) if isinstance(seeds, str) else tuple(seeds)
    if len(set(found)) != len(found) or not found:
        raise UserError(f"seeds: {list(found)} must be distinct, at least one")
    if min(found) < 0:
        raise UserError(f"seeds: must not be negative, got {min(found)}")
    return found


def _variants(variants: Mapping[Any, Any]) -> Iterator[tuple[str, Mapping[Any, Any]]]:
    for axis, named in variants.items():
        if not isinstance(named, Mapping) or not all(
            isinstance(fields, Mapping) for fields in named.values()
        ):
            raise UserError(f"variants.{axis}: expected {{name: {{field: value}}}}")
        if not named:
            raise UserError(f"variants.{axis}: has no values")
        yield str(axis), named
