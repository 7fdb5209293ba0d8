"""A cell of a sweep, its trials, and what was left out, as plans store them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, Generic, TypeVar

from tread_lab.config.decode import encode
from tread_lab.config.run import RunSpec

Cell = dict[str, Any]
Tree = Mapping[str, Any]
Spec = RunSpec | Tree  # of a run, or the tree of one
AnySpec = TypeVar("AnySpec", bound=Spec, covariant=True)


@dataclass(frozen=True)
class Trial(Generic[AnySpec]):
    """A cell with one seed.

    Attributes:
        role: `baseline`, `control` (a baseline with other settings) or `trial`.
        cell: what its axes set; a baseline has none of its own, a control what it changes.
        spec: of its run; a stored plan has the tree, so that reading it decodes nothing.
        run, baseline: the name of its run, and of the run it is compared with.
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
    """Cells left out because they miss one rule of `where`."""

    rule: str
    count: int
    examples: tuple[Cell, ...]


def axis_label(key: str) -> str:
    """Return the short name of an axis: `start` for `route.start`."""
    return key.removeprefix("route.")


def labelled(cell: Cell) -> Cell:
    """Return the cell under the short names of its axes."""
    return {axis_label(key): value for key, value in cell.items()}
