"""What a sweep file says, and the experiment it starts from."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from tread_lab.spec.errors import UserError
from tread_lab.spec.search import SearchSpec


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
        search: how cells are chosen one after another; absent, every cell is run.
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
    search: SearchSpec | None = None

    def __post_init__(self) -> None:
        if len(set(self.seeds)) != len(self.seeds) or not self.seeds:
            raise UserError(f"seeds: {list(self.seeds)} must be distinct, at least one")
        for axis, named in self.variants.items():
            if not isinstance(named, Mapping) or not all(
                isinstance(fields, Mapping) for fields in named.values()
            ):
                raise UserError(f"variants.{axis}: expected {{name: {{field: value}}}}")
