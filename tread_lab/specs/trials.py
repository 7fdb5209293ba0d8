"""Cells and seeds become trials, each with its baseline; what many trials share is decoded once."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tread_lab.specs.cell import Cell, CellNames, has_computed, labelled
from tread_lab.specs.decode import decode, decode_field
from tread_lab.specs.fields import TOP, run_of, with_fields
from tread_lab.specs.run import RunSpec
from tread_lab.specs.signature import signature

_ABSENT = object()


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
class Setting:
    """A cell with its values computed, and the plain tree of its run."""

    cell: Cell
    tree: dict[str, Any]


class Trials:
    """Makes the trials of one sweep.

    Args:
        base: the plain tree that every cell changes. Equal parts of trees are decoded once, and
            those that a cell leaves as they are (the same objects) are not even looked at.
        baseline: fields that turn a trial's tree into that of its baseline, nothing for none.
    """

    def __init__(self, base: Mapping[str, Any], baseline: Mapping[str, Any] | None) -> None:
        self.base, self.baseline = base, baseline
        self._computes = {name for name, value in base.items() if has_computed(value)}
        self._relative = has_computed(baseline)
        self._shared = SharedParts(base)
        self._runs: dict[Any, tuple[RunSpec, str]] = {}

    def setting(self, names: CellNames, cell: Cell) -> Setting:
        """The cell of `names` and its tree with every `=expression` computed."""
        tree = {
            name: value if self._is_settled(name, value) else names.settled(value)
            for name, value in names.tree.items()
        }
        return Setting({key: names.settled(value) for key, value in cell.items()}, tree)

    def pair(self, setting: Setting, seed: int) -> tuple[Trial | None, Trial]:
        """The baseline of a cell, if there is one, and its trial, with one seed.

        Raises:
            UserError: the cell is no possible run, or its baseline is none.
        """
        tree, label = {**setting.tree, "seed": seed}, labelled(setting.cell)
        spec, name = self._run(tree)
        if self.baseline is None:
            return None, Trial("trial", label, seed, spec, name, None)
        fields = self.baseline
        if self._relative:
            fields = CellNames(setting.tree, setting.cell).settled(fields)
        reference, against = self._run(with_fields(tree, fields, "baseline"), "baseline")
        return (
            Trial("baseline", {}, seed, reference, against, None),
            Trial("trial", label, seed, spec, name, against),
        )

    def _is_settled(self, name: str, value: Any) -> bool:
        return self._shared.is_base(name, value) and name not in self._computes

    def _run(self, tree: Mapping[str, Any], path: str = "") -> tuple[RunSpec, str]:
        """The run of a tree and its signature."""
        key = self._shared.key(tree)
        found = self._runs.get(key)
        if found is None:
            spec = run_of(tree, path) if "then" in tree else self._shared.run(tree, path)
            found = self._runs[key] = spec, signature(spec)
        return found


class SharedParts:
    """Decodes the trees of runs.

    Args:
        base: a tree whose parts the others have too, as the same objects: these are known without
            being looked at. It must outlive this, unchanged.
    """

    def __init__(self, base: Mapping[str, Any] | None = None) -> None:
        self._base = base or {}
        self._parts: dict[Any, Any] = {}

    def run(self, tree: Mapping[str, Any], path: str = "") -> RunSpec:
        """The run of a tree, as `decode` has it.

        Raises:
            UserError: as `decode`.
        """
        return decode(RunSpec, {name: self._part(name, v) for name, v in tree.items()}, path)

    def key(self, tree: Mapping[str, Any]) -> Any:
        """Equal for equal trees, cheap for parts of the base."""
        return tuple((name, self._mark(name, value)) for name, value in tree.items())

    def is_base(self, name: str, value: Any) -> bool:
        """Whether a part is the base's own object."""
        return value is self._base.get(name, _ABSENT)

    def _mark(self, name: str, value: Any) -> Any:
        return id(value) if self.is_base(name, value) else repr(value)

    def _part(self, name: str, value: Any) -> Any:
        if name not in TOP:
            return value
        key = name, self._mark(name, value)
        if key not in self._parts:
            self._parts[key] = decode_field(RunSpec, name, value)
        return self._parts[key]
