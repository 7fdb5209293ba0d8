"""Claims about the box in which a search moves."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tread_lab.sweep.search_space import Space

TRIANGLE = [
    {"start": i, "end": j, "rate": 0.5, "selection": s}
    for i in range(6)
    for j in range(i, 6)
    for s in ("rows", "random")
]
PARTIAL = [{"a": 1}, {"a": 2}, *({"a": 3, "b": b} for b in (0.1, 0.2, 0.3))]
shares = st.floats(0, 1)


@given(shares, shares, st.sampled_from(["rows", "random"]))
def test_every_point_is_a_cell(start: float, end: float, selection: str) -> None:
    space = Space(TRIANGLE)
    number = space.number_at({"start": start, "end": end, "selection": selection})
    assert space.cells[number]["selection"] == selection
    last = space.number_at({"start": 1.0, "end": 1.0, "selection": selection})
    assert (space.cells[last]["start"], space.cells[last]["end"]) == (5, 5)


@pytest.mark.parametrize(
    ("cells", "axes"), [(TRIANGLE, ("start", "end", "selection")), (PARTIAL, ("a", "b"))]
)
def test_point_of_a_cell_is_the_cell(cells: list[dict[str, Any]], axes: tuple[str, ...]) -> None:
    space, numbers = Space(cells), list(range(len(cells)))
    assert [space.number_at(space.point(number)) for number in numbers] == numbers
    assert [space.number_of(cell) for cell in cells] == numbers
    assert space.axes == axes  # a constant axis has no coordinate, one of some cells has


def test_nearest_cell_is_the_first_of_equals() -> None:
    space = Space([{"x": x, "y": y} for x in range(10) for y in range(10)])
    point = space.point(0)
    assert space.nearest(point, [5, 33]) == 33  # (3, 3) is nearer than (0, 5)
    assert space.nearest(point, [10, 1]) == 1
