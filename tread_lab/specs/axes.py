"""Axes become cells: lists, ranges such as `0..7`, grids of them, axes that vary together."""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from tread_lab.specs.cell import Cell
from tread_lab.specs.errors import UserError, shown

ZIP = "zip"  # the key under which axes vary together
MOST_CELLS = 200_000


def grid(axes: Any, name: str) -> list[Cell]:
    """Return the cells of one grid, or of a list of grids, in order; equal cells are kept.

    Raises:
        UserError: not axes, or more cells than anybody can mean.
    """
    grids = axes if isinstance(axes, list | tuple) else [axes]
    paths = [name if len(grids) == 1 else f"{name}[{k}]" for k in range(len(grids))]
    columns = [_columns("", axes, path) for axes, path in zip(grids, paths)]
    check_count(sum(math.prod(map(len, parts)) for parts in columns), name)
    return [cell for parts in columns for cell in _product(parts)]


def check_count(count: int, name: str) -> None:
    """Refuse too many cells.

    Raises:
        UserError: it is over the limit.
    """
    if count > MOST_CELLS:
        raise UserError(f"{name}: {count:,} cells, more than {MOST_CELLS:,}; split the sweep")


def cell_of(fields: Any, path: str) -> Cell:
    """Return a cell that is written out: values stand for themselves, nested fields are dotted.

    Raises:
        UserError: not a mapping.
    """
    if not isinstance(fields, Mapping):
        raise UserError(f"expected {{field: value}}, got {shown(fields)}").at(path)
    return dict(_leaves("", fields))


def distinct(cells: Sequence[Cell]) -> tuple[list[Cell], list[Cell]]:
    """Split cells into the first ones that set something, and those that set the same again."""
    first_cells: dict[str, Cell] = {}
    repeated = []
    for cell in cells:
        if first_cells.setdefault(repr(sorted(cell.items())), cell) is not cell:
            repeated.append(cell)
    return list(first_cells.values()), repeated


def _product(columns: Sequence[list[Cell]]) -> Iterator[Cell]:
    """Combine all columns; the last varies fastest."""
    return map(_joined, itertools.product(*columns))


def _columns(prefix: str, axes: Any, path: str) -> list[list[Cell]]:
    """Return the settings of every axis of a grid."""
    if not isinstance(axes, Mapping):
        raise UserError(f"expected a mapping of axes, got {shown(axes)}").at(path)
    columns: list[list[Cell]] = []
    for key, values in axes.items():
        if key == ZIP:
            zips = values if isinstance(values, list | tuple) else [values]
            columns += [_zipped(prefix, together, f"{path}.{ZIP}") for together in zips]
        else:
            columns.append(_axis(f"{prefix}{key}", values, f"{path}.{key}"))
    return columns


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
    return [_joined(parts) for parts in zip(*columns.values())]


def _joined(parts: Iterable[Cell]) -> Cell:
    return {key: value for part in parts for key, value in part.items()}


def _axis(key: str, values: Any, path: str) -> list[Cell]:
    """Return the settings that one axis runs through."""
    if isinstance(values, Mapping):
        columns = _columns(f"{key}.", values, path)
        check_count(math.prod(map(len, columns)), path)
        return list(_product(columns))
    settings = [
        {f"{key}.{sub}": item for sub, item in value.items()}
        if isinstance(value, Mapping) and value
        else {key: value}
        for value in _values(values, path)
    ]
    if not settings:
        raise UserError("has no values").at(path)
    return settings


def _leaves(prefix: str, fields: Mapping[Any, Any]) -> Iterator[tuple[str, Any]]:
    for key, value in fields.items():
        if isinstance(value, Mapping) and value:
            yield from _leaves(f"{prefix}{key}.", value)
        else:
            yield f"{prefix}{key}", value


def _values(values: Any, path: str) -> list[Any]:
    """Return a list as it is, `0..7` as 0 to 7 inclusive, one value as a list of one.

    Ranges are opened inside a list too; a list inside a list is one value.
    """
    if isinstance(values, list | tuple):
        parts = ([v] if isinstance(v, list | tuple) else _values(v, path) for v in values)
        return [item for part in parts for item in part]
    return numbers(values, path) if isinstance(values, str) and ".." in values else [values]


def numbers(text: str, path: str) -> list[int]:
    """Return the whole numbers of a range: `0..7`, both ends inclusive, or `0..8 step 2`.

    Raises:
        UserError: not a range, or one without or with too many numbers.
    """
    form = r"\s*(-?\d{1,15})\s*\.\.\s*(-?\d{1,15})(?:\s+step\s+(\d{1,15}))?\s*"
    match = re.fullmatch(form, text, flags=re.ASCII)
    if match is None:
        raise UserError(f"{shown(text)} is not a range; write 0..7 or 0..8 step 2").at(path)
    first, last, step = int(match[1]), int(match[2]), int(match[3] or 1)
    if step == 0 or last < first:
        raise UserError(f"the range {text!r} is empty").at(path)
    check_count((last - first) // step + 1, f"{path}: the range {text!r}")
    return list(range(first, last + 1, step))
