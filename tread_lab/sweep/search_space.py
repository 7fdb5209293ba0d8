"""The box in which a search moves: cells by coordinates, axis by axis."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from tread_lab.config.labels import Cell

Point = dict[str, float | str]


class Space:
    """Search space with coordinates in [0, 1], resolved axis by axis.

    On each axis, [0, 1] is divided among the values that still lead to a cell; with `start <= end`,
    0.5 on the axis `end` is the middle of the ends allowed by the start. An axis of names is
    categorical if every name is always possible.
    """

    def __init__(self, cells: Sequence[Cell]) -> None:
        self.cells = tuple(cells)
        axes = dict.fromkeys(axis for cell in cells for axis in cell)
        self.axes = tuple(a for a in axes if len({repr(cell.get(a)) for cell in cells}) > 1)
        self._at = {self._path(cell): number for number, cell in enumerate(cells)}
        # By the values before, the values that an axis may have, each with its text.
        self._children: dict[tuple[str, ...], dict[str, Any]] = {}
        for path, number in self._at.items():
            for depth, axis in enumerate(self.axes):
                values = self._children.setdefault(path[:depth], {})
                values.setdefault(path[depth], self.cells[number].get(axis))
        for prefix, values in self._children.items():
            if not _is_named(values.values()):
                ordered = sorted(values.items(), key=lambda item: float(item[1]))
                self._children[prefix] = dict(ordered)
        # By axis its names; none for a place in [0, 1] among ordered values.
        self.coordinates = {axis: self._names(depth) for depth, axis in enumerate(self.axes)}
        self._points = [self._point(self._path(cell)) for cell in self.cells]

    def __len__(self) -> int:
        return len(self.cells)

    def number_of(self, cell: Cell) -> int | None:
        """Return the number of a cell, or `None`."""
        return self._at.get(self._path(cell))

    def point(self, number: int) -> Point:
        """Return the coordinates of a cell: the centre of its interval on every axis."""
        return self._points[number]

    def number_at(self, point: Mapping[str, float | str]) -> int:
        """Return the number of the cell at a point of the box."""
        path: tuple[str, ...] = ()
        for axis, names in self.coordinates.items():
            values, place = self._children[path], point[axis]
            share = [*map(_name, values.values())].index(str(place)) if names else 0
            if not names:
                share = min(int(float(place) * len(values)), len(values) - 1)
            path = (*path, [*values][share])
        return self._at[path]

    def nearest(self, point: Mapping[str, float | str], among: Iterable[int]) -> int:
        """Return the cell nearest to a point; the first of equals."""
        return min(among, key=lambda number: (self._distance(point, number), number))

    def _distance(self, point: Mapping[str, float | str], number: int) -> float:
        parts = []
        for axis, names in self.coordinates.items():
            a, b = self._points[number][axis], point[axis]
            parts.append(float(a != b) if names else float(a) - float(b))
        return math.hypot(*parts)

    def _path(self, cell: Cell) -> tuple[str, ...]:
        return tuple(repr(cell.get(axis)) for axis in self.axes)

    def _names(self, depth: int) -> tuple[str, ...]:
        choices = [[*v.values()] for prefix, v in self._children.items() if len(prefix) == depth]
        named = all(_is_named(values) and values == choices[0] for values in choices)
        return tuple(map(_name, choices[0])) if named else ()

    def _point(self, path: tuple[str, ...]) -> Point:
        point: Point = {}
        for depth, (axis, names) in enumerate(self.coordinates.items()):
            values = self._children[path[:depth]]
            middle = ([*values].index(path[depth]) + 0.5) / len(values)
            point[axis] = _name(values[path[depth]]) if names else middle
        return point


def _is_named(values: Iterable[Any]) -> bool:
    return any(isinstance(v, bool) or not isinstance(v, int | float) for v in values)


def _name(value: Any) -> str:
    return value if isinstance(value, str) else repr(value)
