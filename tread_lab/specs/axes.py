"""Axes become cells: lists, ranges and grids."""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from tread_lab.specs.cell import Cell
from tread_lab.specs.errors import UserError, shown
from tread_lab.specs.fields import dotted, set_once

ZIP = "zip"  # the key under which axes vary together
MOST_CELLS = 10_000  # times seeds
_WHOLE = r"\s*(-?\d{1,15})\s*\.\.\s*(-?\d{1,15})(?:\s+step\s+(\d{1,15}))?\s*"
_NUMBER = r"-?\d{1,15}(?:\.\d{1,15})?(?:e[+-]?\d{1,3})?"
_SCALED = rf"\s*({_NUMBER})\s*\.\.\s*({_NUMBER})\s+(log|linear)(?:\s+(\d{{1,15}}))?\s*"
_VALUES = 33  # of a scaled range that does not say how many: a search chooses among them
_SCALES: Mapping[str, Callable[[float, float, float], float]] = {
    "log": lambda first, last, share: first * (last / first) ** share,
    "linear": lambda first, last, share: first + (last - first) * share,
}


def grid(axes: Any, name: str) -> list[Cell]:
    """Return the cells of one grid, or of a list of grids, in order; equal cells are kept.

    Raises:
        UserError: not axes, or more cells than anybody can mean.
    """
    columns = [_columns("", axes, path) for path, axes in _listed(axes, name)]
    check_count(sum(math.prod(map(len, parts)) for parts in columns), name)
    return [_joined(parts) for grid in columns for parts in itertools.product(*grid)]


def _listed(axes: Any, path: str) -> list[tuple[str, Any]]:
    """Return one mapping of axes, or each of a list of them, with its place."""
    each = axes if isinstance(axes, list | tuple) else [axes]
    if not each:
        raise UserError("has no values").at(path)
    return [(path if len(each) == 1 else f"{path}[{k}]", one) for k, one in enumerate(each)]


def check_count(count: int, name: str) -> None:
    """Refuse too many cells."""
    if count > MOST_CELLS:
        raise UserError(f"{name}: {count:,} cells, more than {MOST_CELLS:,}; split the sweep")


def cell_of(fields: Mapping[str, Any], path: str) -> Cell:
    """Return a cell that is written out: values stand for themselves, nested fields are dotted."""
    parts = {f"{path}.{key}": dotted({key: value}, empty=True) for key, value in fields.items()}
    return _joined(cell for (cell,) in _apart((at, [dict(part)]) for at, part in parts.items()))


def distinct(cells: Sequence[Cell]) -> tuple[list[Cell], list[Cell]]:
    """Split cells into the first ones that set something, and those that set the same again."""
    first_cells: dict[str, Cell] = {}
    repeated = []
    for cell in cells:
        if first_cells.setdefault(repr(sorted(cell.items())), cell) is not cell:
            repeated.append(cell)
    return list(first_cells.values()), repeated


def _columns(prefix: str, axes: Any, path: str) -> list[list[Cell]]:
    """Return the settings of every axis of a grid."""
    if not isinstance(axes, Mapping):
        raise UserError(f"expected a mapping of axes, got {shown(axes)}").at(path)
    columns: list[tuple[str, list[Cell]]] = []
    for key, values in axes.items():
        place = f"{path}.{key}"
        if key == ZIP:
            columns += [(at, _zipped(prefix, zipped, at)) for at, zipped in _listed(values, place)]
        else:
            columns.append((place, _axis(f"{prefix}{key}", values, place)))
    return _apart(columns)


def _apart(columns: Iterable[tuple[str, list[Cell]]]) -> list[list[Cell]]:
    """Return columns without their places; refuse a field that two of them set."""
    places: dict[str, str] = {}
    apart = []
    for place, column in columns:
        set_once(places, dict.fromkeys(key for cell in column for key in cell), place)
        apart.append(column)
    return apart


def _zipped(prefix: str, axes: Any, path: str) -> list[Cell]:
    """Return the settings of axes that vary together: the first of each, the second of each."""
    if not isinstance(axes, Mapping) or not axes:
        raise UserError(f"expected axes that vary together, got {shown(axes)}").at(path)
    columns: dict[Any, list[Cell]] = {}
    for key, values in axes.items():
        place = f"{path}.{key}"
        if isinstance(values, Mapping):
            columns[key] = _zipped(f"{prefix}{key}.", values, place)
        else:
            columns[key] = _axis(f"{prefix}{key}", values, place)
    if len({len(column) for column in columns.values()}) > 1:
        counts = ", ".join(f"{key} has {len(column)}" for key, column in columns.items())
        raise UserError(f"axes that vary together have equally many values; {counts}").at(path)
    named = ((f"{path}.{key}", column) for key, column in columns.items())
    return [_joined(parts) for parts in zip(*_apart(named))]


def _joined(parts: Iterable[Cell]) -> Cell:
    return {key: value for part in parts for key, value in part.items()}


def _axis(key: str, values: Any, path: str) -> list[Cell]:
    """Return the settings that one axis runs through."""
    if isinstance(values, Mapping):
        columns = _columns(f"{key}.", values, path)
        check_count(math.prod(map(len, columns)), path)
        return [_joined(parts) for parts in itertools.product(*columns)]
    settings = [
        {f"{key}.{sub}": item for sub, item in value.items()}
        if isinstance(value, Mapping) and value
        else {key: value}
        for value in _values(values, path)
    ]
    if not settings:
        raise UserError("has no values").at(path)
    return settings


def _values(values: Any, path: str) -> list[Any]:
    """Return a list as it is, `0..7` as 0 to 7 inclusive, one value as a list of one.

    Ranges are opened inside a list too; a list inside a list is one value.
    """
    if isinstance(values, list | tuple):
        parts = ([v] if isinstance(v, list | tuple) else _values(v, path) for v in values)
        return [item for part in parts for item in part]
    return numbers(values, path) if isinstance(values, str) and ".." in values else [values]


def numbers(text: str, path: str) -> list[int] | list[float]:
    """Return the numbers of a range, both ends inclusive.

    `0..7` and `0..8 step 2` are whole numbers. `1e-4..1e-2 log` are 33 numbers at equal ratios,
    `0.1..0.9 linear 9` are 9 at equal distances; whole ones where both ends are written so.

    Raises:
        UserError: not a range, or one without or with too many numbers.
    """
    if (scaled := re.fullmatch(_SCALED, text, flags=re.ASCII)) is not None:
        return _scaled(*scaled.groups(), place=f"{path}: the range {text!r}")
    match = re.fullmatch(_WHOLE, text, flags=re.ASCII)
    if match is None:
        forms = "0..7, 0..8 step 2, 1e-4..1e-2 log or 0.1..0.9 linear 9"
        raise UserError(f"{shown(text)} is not a range; write {forms}").at(path)
    first, last, step = int(match[1]), int(match[2]), int(match[3] or 1)
    if step == 0 or last < first:
        raise UserError(f"the range {text!r} is empty").at(path)
    check_count((last - first) // step + 1, f"{path}: the range {text!r}")
    return list(range(first, last + 1, step))


def _scaled(
    start: str, end: str, scale: str, count: str | None, *, place: str
) -> list[int] | list[float]:
    """Return the numbers that a scale puts between two; equal ones once.

    They have three digits, or as many as keep them apart and between the two.
    """
    first, last, values = float(start), float(end), int(count or _VALUES)
    if not first < last or values < 2 or (scale == "log" and first <= 0):
        raise UserError("from a smaller to a larger number, log from above 0").at(place)
    check_count(values, place)
    inner = [_SCALES[scale](first, last, k / (values - 1)) for k in range(1, values - 1)]
    is_whole = {".", "e"}.isdisjoint(start + end)

    def rounded(digits: int) -> list[Any]:
        every = dict.fromkeys([first, *(float(f"{x:.{digits}g}") for x in inner), last])
        return list(dict.fromkeys(map(round, every))) if is_whole else list(every)

    exact = rounded(_EXACT)
    tried = (rounded(digits) for digits in range(3, _EXACT))
    return next((x for x in tried if len(x) == len(exact) and x == sorted(x)), exact)


_EXACT = 17  # digits of a float
