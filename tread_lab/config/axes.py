"""Axes become cells: lists, ranges and grids."""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from tread_lab.config.cell import Cell
from tread_lab.config.errors import Mistakes, UserError, shown
from tread_lab.config.fields import set_once

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
        UserError: every mistake in the axes, or more cells than anybody can mean.
    """
    cells, wrong = list[Cell](), Mistakes()
    for place, one in _listed(axes, name):
        with wrong:
            cells += _combined("", one, place)
    wrong.check()
    check_count(len(cells), name)
    return cells


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


def distinct(cells: Sequence[Cell]) -> tuple[list[Cell], list[Cell]]:
    """Split cells into the first ones that set something, and those that set the same again."""
    first_cells: dict[str, Cell] = {}
    repeated = []
    for cell in cells:
        if first_cells.setdefault(repr(sorted(cell.items())), cell) is not cell:
            repeated.append(cell)
    return list(first_cells.values()), repeated


def _combined(prefix: str, axes: Any, path: str, *, zipped: bool = False) -> list[Cell]:
    """Return the settings of all axes of a mapping, each with each, or of axes that vary together
    the first of each, the second of each."""
    if not isinstance(axes, Mapping) or (zipped and not axes):
        raise UserError(f"must be a mapping of axes, got {shown(axes)}").at(path)
    columns, wrong = dict[str, list[Cell]](), Mistakes()
    for key, values in axes.items():
        together, own = key == ZIP and not zipped, f"{path}.{key}"
        for place, part in _listed(values, own) if together else [(own, values)]:
            with wrong:
                if together:
                    columns[place] = _combined(prefix, part, place, zipped=True)
                elif isinstance(part, Mapping):
                    columns[place] = _combined(f"{prefix}{key}.", part, place, zipped=zipped)
                else:
                    columns[place] = _axis(f"{prefix}{key}", part, place)
    wrong.check()
    places: dict[str, str] = {}
    for place, column in columns.items():
        set_once(places, dict.fromkeys(name for cell in column for name in cell), place)
    if not zipped:
        check_count(math.prod(map(len, columns.values())), path)
    elif len({*map(len, columns.values())}) > 1:
        counts = ", ".join(f"{place} has {len(column)}" for place, column in columns.items())
        raise UserError(f"{path}: must have equally many values on each axis; {counts}")
    rows = zip(*columns.values()) if zipped else itertools.product(*columns.values())
    return [{name: value for cell in row for name, value in cell.items()} for row in rows]


def _axis(name: str, values: Any, path: str) -> list[Cell]:
    """Return the settings that one axis runs through."""
    settings = [
        {f"{name}.{part}": item for part, item in value.items()}
        if isinstance(value, Mapping) and value
        else {name: value}
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
    """Return the numbers that a scale puts between two, with three digits or, where these leave
    fewer numbers, with all; equal ones once, whole ones where both ends are written so."""
    first, last, values = float(start), float(end), int(count or _VALUES)
    if not first < last or values < 2 or (scale == "log" and first <= 0):
        raise UserError("must be from a smaller to a larger number, log from above 0").at(place)
    check_count(values, place)
    inner = [_SCALES[scale](first, last, k / (values - 1)) for k in range(1, values - 1)]
    rounded = [first, *(float(f"{x:.3g}") for x in inner), last]
    exact = rounded if [*dict.fromkeys(rounded)] == sorted(rounded) else [first, *inner, last]
    is_whole = {".", "e"}.isdisjoint(start + end)
    return list(dict.fromkeys(map(round, exact))) if is_whole else list(dict.fromkeys(exact))
