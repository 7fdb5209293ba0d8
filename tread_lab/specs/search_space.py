"""The cells of a sweep as a box that a sampler can move in: every point is a cell, never a hole."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tread_lab.specs.cell import Cell

Point = dict[str, float | str]


@dataclass(frozen=True)
class Coordinate:
    """One axis of the box: a place in [0, 1] among ordered values, or one of several names."""

    axis: str
    names: tuple[str, ...] = ()


class Space:
    """Cells by coordinates, chosen axis by axis.

    On each axis the values are taken that still lead to a cell, in their order, and [0, 1] is
    divided among them; with `start <= end`, 0.5 on the axis `end` is the middle of those ends that
    the start has. An axis of names is a choice among them where every name is always possible.
    """

    def __init__(self, cells: Sequence[Cell]) -> None:
        self.cells = tuple(cells)
        axes = [axis for axis in cells[0] if len({repr(cell.get(axis)) for cell in cells}) > 1]
        self.axes = tuple(axes)
        self._children: dict[tuple[str, ...], list[Any]] = {}
        self._at: dict[tuple[str, ...], int] = {}
        for number, cell in enumerate(cells):
            path = self._path(cell)
            self._at[path] = number
            for depth, axis in enumerate(self.axes):
                values = self._children.setdefault(path[:depth], [])
                if not any(repr(value) == path[depth] for value in values):
                    values.append(cell.get(axis))
        for prefix, values in self._children.items():
            self._children[prefix] = _ordered(values)
        self.coordinates = tuple(self._coordinate(depth) for depth in range(len(self.axes)))
        self._points = [self._point(cell) for cell in self.cells]

    def __len__(self) -> int:
        return len(self.cells)

    def number_of(self, cell: Cell) -> int | None:
        """Return the number of a cell; `None` if it is not in the space."""
        return self._at.get(self._path(cell))

    def point(self, number: int) -> Point:
        """Return the coordinates of a cell: the middle of its share on every axis."""
        return self._points[number]

    def number_at(self, point: Mapping[str, float | str]) -> int:
        """Return the number of the cell at a point of the box."""
        path: tuple[str, ...] = ()
        for coordinate in self.coordinates:
            values, place = self._children[path], point[coordinate.axis]
            if coordinate.names:
                path = (*path, next(repr(v) for v in values if _name(v) == place))
            else:
                share = min(int(float(place) * len(values)), len(values) - 1)
                path = (*path, repr(values[share]))
        return self._at[path]

    def nearest(self, point: Mapping[str, float | str], among: Iterable[int]) -> int:
        """Return the cell among these that is nearest to a point; of equals the first."""
        return min(among, key=lambda number: (self._distance(point, number), number))

    def _distance(self, point: Mapping[str, float | str], number: int) -> float:
        parts = []
        for coordinate in self.coordinates:
            a, b = self._points[number][coordinate.axis], point[coordinate.axis]
            parts.append(float(a != b) if coordinate.names else float(a) - float(b))
        return math.hypot(*parts)

    def _path(self, cell: Cell) -> tuple[str, ...]:
        return tuple(repr(cell.get(axis)) for axis in self.axes)

    def _coordinate(self, depth: int) -> Coordinate:
        choices = [v for prefix, v in self._children.items() if len(prefix) == depth]
        named = all(_is_named(values) and values == choices[0] for values in choices)
        return Coordinate(self.axes[depth], tuple(map(_name, choices[0])) if named else ())

    def _point(self, cell: Cell) -> Point:
        path = self._path(cell)
        point: Point = {}
        for depth, coordinate in enumerate(self.coordinates):
            values = self._children[path[:depth]]
            if coordinate.names:
                point[coordinate.axis] = _name(cell.get(coordinate.axis))
                continue
            rank = [repr(value) for value in values].index(path[depth])
            point[coordinate.axis] = (rank + 0.5) / len(values)
        return point


def _ordered(values: list[Any]) -> list[Any]:
    return values if _is_named(values) else sorted(values, key=float)


def _is_named(values: Sequence[Any]) -> bool:
    return any(isinstance(v, bool) or not isinstance(v, int | float) for v in values)


def _name(value: Any) -> str:
    return value if isinstance(value, str) else repr(value)
