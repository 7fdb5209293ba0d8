"""The box that a search's samplers move in has no holes."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tread_lab.specs.search_space import Coordinate, Space

TRIANGLE = [
    {"start": i, "end": j, "rate": 0.5, "selection": s}
    for i in range(6)
    for j in range(i, 6)
    for s in ("rows", "random")
]
shares = st.floats(0, 1)


@given(shares, shares, st.sampled_from(["rows", "random"]))
def test_every_point_of_the_box_is_a_cell(start: float, end: float, selection: str) -> None:
    space = Space(TRIANGLE)
    number = space.number_at({"start": start, "end": end, "selection": selection})
    assert space.cells[number]["selection"] == selection


def test_the_middle_of_a_cells_share_is_that_cell() -> None:
    space = Space(TRIANGLE)
    assert [space.number_at(space.point(n)) for n in range(len(space))] == list(range(len(space)))
    assert [space.number_of(cell) for cell in TRIANGLE] == list(range(len(space)))
    assert space.axes == ("start", "end", "selection")  # a constant axis has no coordinate


def test_the_upper_edge_of_the_box_belongs_to_the_last_cell() -> None:
    space = Space(TRIANGLE)
    assert space.cells[space.number_at({"start": 1.0, "end": 1.0, "selection": "rows"})] == {
        "start": 5,
        "end": 5,
        "rate": 0.5,
        "selection": "rows",
    }


def test_names_that_not_every_cell_may_have_are_no_choice() -> None:
    cells = [
        {"start": 0, "selection": "rows"},
        {"start": 0, "selection": "random"},
        {"start": 1, "selection": "rows"},
    ]
    space = Space(cells)
    assert space.coordinates == (Coordinate("start"), Coordinate("selection"))
    assert space.number_at({"start": 0.9, "selection": 0.9}) == 2
    choice = Space([*cells, {"start": 1, "selection": "random"}])
    assert choice.coordinates[1] == Coordinate("selection", ("rows", "random"))


def test_near_cells_are_near() -> None:
    space = Space(TRIANGLE)
    point = space.point(space.number_of(TRIANGLE[0]) or 0)
    found = space.nearest(point, [n for n in range(len(space)) if n != 0])
    assert space.cells[found] == {"start": 0, "end": 1, "rate": 0.5, "selection": "rows"}


def test_of_equally_near_cells_the_first_is_nearest() -> None:
    space = Space([{"start": 0}, {"start": 1}, {"start": 2}, {"start": 3}])
    assert space.nearest({"start": 0.5}, [2, 1]) == 1


def test_places_follow_the_order_of_values_and_a_choice_of_two_that_not_all_have_is_a_place() -> (
    None
):
    cells = [{"x": 3, "y": True}, {"x": 1, "y": True}, {"x": 2, "y": False}, {"x": 2, "y": True}]
    space = Space(cells)
    assert [space.point(n) for n in range(4)] == [
        {"x": 5 / 6, "y": 0.5}, {"x": 1 / 6, "y": 0.5}, {"x": 0.5, "y": 0.25}, {"x": 0.5, "y": 0.75}
    ]  # fmt: skip
    assert space.number_of({"x": 2, "y": True}) == 3 and space.number_of({"x": 9}) is None


def test_yes_and_no_are_names_and_numbers_are_places() -> None:
    flags = Space([{"a": True, "b": 2}, {"a": False, "b": 2}, {"a": True, "b": 1},
                   {"a": False, "b": 1}])  # fmt: skip
    assert flags.coordinates == (Coordinate("a", ("True", "False")), Coordinate("b"))
    assert flags.number_at({"a": "False", "b": 0.0}) == 3


def test_the_distance_is_that_of_a_straight_line() -> None:
    axes = [{"x": x, "y": y} for x in range(10) for y in range(10)]
    space = Space(axes)
    point = {"x": 0.05, "y": 0.05}  # of cell (0, 0): (3, 3) is nearer than (0, 5)
    assert space.nearest(point, [5, 33]) == 33
