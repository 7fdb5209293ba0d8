"""Axes become cells: grids, lists of values, ranges such as `0..7`, and several grids in a row."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from tread_lab.spec.cell import Cell
from tread_lab.spec.errors import UserError


def grid(axes: Any, name: str) -> list[Cell]:
    """The distinct cells of one grid, or of a list of them."""
    grids = axes if isinstance(axes, list | tuple) else [axes]
    paths = [name if len(grids) == 1 else f"{name}[{k}]" for k in range(len(grids))]
    return distinct([cell for grid, path in zip(grids, paths) for cell in cells_of(grid, path)])


def cells_of(axes: Any, path: str) -> Iterator[Cell]:
    """The product of all axes, the last varying fastest."""
    if not isinstance(axes, Mapping):
        raise UserError(f"expected a mapping of axes, got {axes!r}").at(path)
    columns = [_axis(str(key), values, f"{path}.{key}") for key, values in axes.items()]
    for parts in itertools.product(*columns):
        yield {key: value for part in parts for key, value in part.items()}


def _axis(key: str, values: Any, path: str) -> list[Cell]:
    """The settings that one axis runs through."""
    if isinstance(values, Mapping):
        columns = [_axis(f"{key}.{sub}", v, f"{path}.{sub}") for sub, v in values.items()]
        return [{k: v for part in parts for k, v in part.items()} for parts in _product(columns)]
    settings: list[Cell] = []
    for value in _values(values, path):
        if isinstance(value, Mapping):
            settings.append({f"{key}.{sub}": item for sub, item in value.items()})
        else:
            settings.append({key: value})
    if not settings:
        raise UserError("has no values").at(path)
    return settings


def _product(columns: Sequence[list[Cell]]) -> Iterator[tuple[Cell, ...]]:
    return itertools.product(*columns)


def _values(values: Any, path: str) -> list[Any]:
    """A list as it is, `0..7` as 0 to 7 inclusive, `0..8 step 2`, one value as a list of one.

    Ranges are opened inside a list too; a list inside a list is one value.
    """
    if isinstance(values, list | tuple):
        parts = ([v] if isinstance(v, list | tuple) else _values(v, path) for v in values)
        return [item for part in parts for item in part]
    text = values if isinstance(values, str) else ""
    match = re.fullmatch(r"\s*(-?\d+)\s*\.\.\s*(-?\d+)(?:\s+step\s+(\d+))?\s*", text)
    if match is None:
        if ".." in text:
            raise UserError(f"{text!r} is not a range; write 0..7 or 0..8 step 2").at(path)
        return [values]
    first, last, step = int(match[1]), int(match[2]), int(match[3] or 1)
    if step == 0 or last < first:
        raise UserError(f"the range {text!r} is empty").at(path)
    if (last - first) // step >= 1_000_000:
        raise UserError(f"the range {text!r} has over a million values").at(path)
    return list(range(first, last + 1, step))


def distinct(cells: Sequence[Cell]) -> list[Cell]:
    """The cells without those that set the same as an earlier one."""
    return list({repr(sorted(cell.items(), key=str)): cell for cell in cells}.values())
