"""A cell of a sweep: what its axes set, how it is shown, and the names its expressions may use."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tread_lab.spec.decode import decode
from tread_lab.spec.errors import UserError, suggest
from tread_lab.spec.fields import route_tree
from tread_lab.spec.routes import block_index
from tread_lab.spec.run import ModelSpec

Cell = dict[str, Any]


def label_of(key: str) -> str:
    """The short name of an axis: `route.start` is `start`."""
    return key.removeprefix("route.")


def show_cell(cell: Cell) -> str:
    """`start=3, end=2` for people."""
    return ", ".join(f"{label_of(key)}={value}" for key, value in cell.items()) or "the base run"


class CellNames:
    """Names an expression may use: axis labels, start, end, length, rate, B, N, dotted fields."""

    def __init__(self, tree: Mapping[str, Any], cell: Cell) -> None:
        self.tree = tree
        self.labels = {label_of(key): value for key, value in cell.items()}

    def __call__(self, name: str) -> Any:
        if name in ("start", "end", "length", "rate"):
            return self._route(name)
        if name == "B":
            return self._depth()
        if name in self.labels:
            return self.labels[name]
        node: Any = self.tree
        for part in name.split("."):
            if not isinstance(node, Mapping) or part not in node:
                known = {*self.labels, "start", "end", "length", "rate", "B", *self.tree}
                raise UserError(f"unknown name {name!r}{suggest(name, known)}")
            node = node[part]
        return node

    def _route(self, name: str) -> Any:
        routes = self.tree.get("routes") or [{}]
        route = routes[0] if isinstance(routes[0], Mapping) else route_tree(routes[0])
        if name == "rate":
            return route.get("rate", 0.5)
        if "start" not in route or "end" not in route:
            raise UserError(f"{name!r} needs a route; add an axis `route` or a route to the base")
        ends = {key: block_index(route[key], self._depth()) for key in ("start", "end")}
        return ends["end"] - ends["start"] + 1 if name == "length" else ends[name]

    def _depth(self) -> int:
        model = self.tree.get("model", {})
        return decode(ModelSpec, model, "model").depth
