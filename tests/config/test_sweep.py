"""Claims about axes and their cells, seeds and early stopping."""

from __future__ import annotations

import re
from typing import Any

import pytest

from tread_lab.config import UserError, decode
from tread_lab.config.sweep import StopEarlySpec, SweepSpec, distinct, grid


def test_cells_are_equal_in_any_order() -> None:
    cells = [{"rate": 0.5, "route": "2->8"}, {"route": "2->8", "rate": 0.5}]
    assert distinct(cells) == cells[:1]


@pytest.mark.parametrize(
    ("axes", "found"),
    [
        ({"a": 3}, [{"a": 3}]),
        ({"a": "0..8 step 3"}, [{"a": 0}, {"a": 3}, {"a": 6}]),
        ({"a": "3..3"}, [{"a": 3}]),
        ({"a": "-2..-1"}, [{"a": -2}, {"a": -1}]),
        ({"a": ["0..1", 5]}, [{"a": 0}, {"a": 1}, {"a": 5}]),
        ({"a": [[1, 2], [3]]}, [{"a": [1, 2]}, {"a": [3]}]),
        ({"a": [{}, {"b": 1}]}, [{"a": {}}, {"a.b": 1}]),
        ({"a": {"b": [1, 2]}, "c": "x"}, [{"a.b": 1, "c": "x"}, {"a.b": 2, "c": "x"}]),
        (
            {"zip": {"a": {"b": {"c": [1, 2]}}, "d": [3, 4]}},
            [{"a.b.c": 1, "d": 3}, {"a.b.c": 2, "d": 4}],
        ),
        (
            {"a": [1, 2], "zip": {"b": [3, 4], "c": {"d": "5..6"}}},
            [{"a": a, **both} for a in (1, 2) for both in ({"b": 3, "c.d": 5}, {"b": 4, "c.d": 6})],
        ),
        (
            {"zip": [{"a": [1, 2], "b": [3, 4]}, {"c": [5, 6]}]},
            [{"a": a, "b": a + 2, "c": c} for a in (1, 2) for c in (5, 6)],
        ),
        ({"a": {"zip": {"b": [1, 2], "c": [3, 4]}}}, [{"a.b": 1, "a.c": 3}, {"a.b": 2, "a.c": 4}]),
        ([{"a": [1]}, {"b": [2]}], [{"a": 1}, {"b": 2}]),
        ({"a": [3, "0.1..0.5 linear 3"]}, [{"a": 3}, {"a": 0.1}, {"a": 0.3}, {"a": 0.5}]),
        *(
            ({"a": scaled}, [{"a": value} for value in values])
            for scaled, values in {
                "1e-4..1e-2 log 5": [1e-4, 3.16e-4, 1e-3, 3.16e-3, 1e-2],
                "8..64 log 4": [8, 16, 32, 64],
                "1..4 log": [1, 2, 3, 4],  # of 33 places
                "1000..1010 linear 3": [1000, 1005, 1010],
                "0.1234..0.1236 linear 3": [0.1234, 0.1235, 0.1236],
            }.items()
        ),
    ],
)
def test_axes_expand_to_cells(axes: Any, found: list[Any]) -> None:
    assert grid(axes, "axes") == found


@pytest.mark.parametrize(
    ("axes", "said"),
    [
        ([{"a": [1]}, 3], r"^axes\[1\]: must be a mapping of axes, got 3"),
        ({"a": "\u0663..\u0665"}, r"must be a range, got .* Try 0..7, 0..8 step 2, 1e-4..1e-2 "),
        ({"a": "0.1..0.9"}, r"must be a range, got .* or 0.1..0.9 linear 9"),
        (
            {"a": "0..1.0 log"},
            r"^axes.a: the range .*: must be from a smaller to a larger number, log",
        ),
        ({"a": "1..3 linear 1"}, r"'1..3 linear 1': must be from a smaller to a larger"),
        ({"a": "1e-4..1e-2 log"}, r"'1e-4..1e-2 log': must have at most 4 cells, got 33"),
        ({"a": "5..4"}, r"^axes.a: must be a range from low to high, got '5..4'"),
        ({"a": "1..2 step 0"}, r"^axes.a: must be a range from low to high, got '1..2 step 0'"),
        ({"zip": {}}, r"^axes.zip: must be a mapping of axes, got {}"),
        (
            [{"a": [1, 2, 3]}, {"b": [1, 2]}],
            "^axes: must have at most 4 cells, got 5. Try splitting",
        ),
        ({"a": {"b": [1, 2, 3], "c": [1, 2]}}, r"^axes\.a: must have at most 4 cells, got 6"),
        ({"a": "0..4"}, r"^axes\.a: the range '0\.\.4': must have at most 4 cells, got 5"),
    ],
)
def test_wrong_axes_are_refused_by_place(
    axes: Any, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert len(grid({"a": "1..10000"}, "axes")) == 10_000
    monkeypatch.setattr("tread_lab.config.sweep.MOST_CELLS", 4)
    assert len(grid({"a": [1, 2], "b": [1, 2]}, "axes")) == len(grid({"a": "0..3"}, "axes")) == 4
    with pytest.raises(UserError, match=said):
        grid(axes, "axes")


def test_rungs_start_by_the_first_step() -> None:
    assert [StopEarlySpec().first_rung(steps) for steps in (1, 8, 9, 18, 900)] == [1, 2, 3, 6, 300]
    assert StopEarlySpec(grace=7).first_rung(3) == 7
    assert StopEarlySpec().rungs(8) == (2,)


@pytest.mark.parametrize(
    ("seeds", "said"),
    [([], "seeds: must be distinct whole numbers from 0, got []"),
     ([3, -1], "seeds: must be distinct whole"), ([1, 1], "seeds: must be distinct whole"),
     ("0.5..1.5 linear 3", "seeds: must be distinct whole numbers from 0, got [0.5")],
)  # fmt: skip
def test_wrong_seeds_are_refused(seeds: Any, said: str) -> None:
    with pytest.raises(UserError, match=re.escape(said)):
        decode(SweepSpec, {"experiment": "tiny", "seeds": seeds})
    assert decode(SweepSpec, {"experiment": "tiny", "seeds": "0..3"}).seeds == (0, 1, 2, 3)
