"""A cell of a sweep: what its axes set, and the names its expressions may use."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from typing import Any

from tread_lab.specs.decode import decode_field
from tread_lab.specs.errors import UserError
from tread_lab.specs.expression import evaluate
from tread_lab.specs.fields import field_value, near_field, routes_of, value_at
from tread_lab.specs.labels import axis_label
from tread_lab.specs.model import ModelSpec
from tread_lab.specs.routes import block_index
from tread_lab.specs.run import RunSpec

Cell = dict[str, Any]
_ROUTE = ("start", "end", "length", "rate")


def labelled(cell: Cell) -> Cell:
    """Return the cell under the short names of its axes."""
    return {axis_label(key): value for key, value in cell.items()}


def is_computed(value: Any) -> bool:
    """Whether a value is an expression to compute: `=B-4`."""
    return isinstance(value, str) and value.startswith("=")


def has_computed(value: Any) -> bool:
    """Whether there is an `=expression` anywhere in a plain tree."""
    if isinstance(value, Mapping):
        return any(map(has_computed, value.values()))
    return any(map(has_computed, value)) if isinstance(value, list | tuple) else is_computed(value)


class CellNames:
    """Names an expression may use: the cell's axes, start, end, length, rate, B, N, and any field
    of the run by its dotted name, its default where nothing sets it.

    Args:
        tree: the run's plain tree, `=expression` where a value is computed.
        facts: further names, such as what the device can do.
    """

    def __init__(
        self, tree: Mapping[str, Any], cell: Cell, facts: Mapping[str, Any] | None = None
    ) -> None:
        self.tree, self.facts, self.labels = tree, facts or {}, labelled(cell)
        self._results: dict[str, Any] = {}
        self._open: list[str] = []

    def __call__(self, name: str) -> Any:
        if name in _ROUTE:
            return self._route(name)
        if name == "B":
            return self._depth()
        if name == "N":
            data = decode_field(RunSpec, "data", self.settled(self.tree.get("data", {})))
            model = decode_field(RunSpec, "model", self.settled(self.tree.get("model", {})))
            return (data.size // model.patch) ** 2
        if name in self.labels:
            return self.settled(self.labels[name])
        return self.settled(self._field(name))

    def settled(self, value: Any) -> Any:
        """Return `value` with every `=expression` in it computed.

        Raises:
            UserError: an expression that cannot be evaluated, or that needs its own value.
        """
        if isinstance(value, Mapping):
            return {key: self.settled(item) for key, item in value.items()}
        if isinstance(value, list | tuple):
            return [self.settled(item) for item in value]
        return self._computed(value) if is_computed(value) else value

    def _computed(self, text: str) -> Any:
        if text in self._results:
            return self._results[text]
        if text in self._open:
            raise UserError(f"{' needs '.join([*self._open, text])}: a circle")
        self._open.append(text)
        try:
            self._results[text] = evaluate(text[1:], self)
        finally:
            self._open.pop()
        return self._results[text]

    def _field(self, name: str) -> Any:
        if name == "seed":
            raise UserError("'seed' is no name here: every cell runs once for each of `seeds`")
        with contextlib.suppress(KeyError):
            return value_at(self.facts, name.split("."))
        try:
            return field_value(self.tree, name)
        except KeyError:
            near = near_field(name, {*self.labels, *_ROUTE, "B", "N", *self.facts})
            raise UserError(f"unknown name {name!r}{near}") from None

    def _route(self, name: str) -> Any:
        routes = self.tree.get("routes") or [{}]
        route = routes_of(routes)[0]
        if name == "rate":
            return self.settled(route.get("rate", 0.5))
        if "start" not in route or "end" not in route:
            raise UserError(f"{name!r} needs a route; add an axis `route` or a route to the base")
        if name == "length":
            return int(self._route("end")) - int(self._route("start")) + 1
        return block_index(self.settled(route[name]), self._depth())

    def _depth(self) -> int:
        model = self.tree.get("model", {})
        if isinstance(model, Mapping) and type(depth := self.settled(model.get("depth"))) is int:
            return depth
        spec: ModelSpec = decode_field(RunSpec, "model", self.settled(model))
        return spec.depth
