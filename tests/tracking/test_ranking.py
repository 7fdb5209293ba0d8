"""Cells are ranked by their gap, with an interval over seeds where there are several."""

from __future__ import annotations

import pytest

from tread_lab.compare.gaps import gap_over_seeds
from tread_lab.tracking.ranking import Shown, as_csv, as_markdown, ranking


def shown(cell: str, gap: float | None) -> Shown:
    metrics = {} if gap is None else {"gap/heldout": gap, "gap/heldout_low": gap - 1}
    return Shown(cell, {}, {**metrics, "heldout/loss": 1.0}, 0)


def test_the_best_cell_comes_first_and_unmeasured_ones_not_at_all() -> None:
    rows = ranking([shown("b", 0.3), shown("dense", None), shown("a", -0.1)])
    assert [row.cell for row in rows] == ["a", "b"]
    assert (rows[0].gap.low, rows[0].gap.unit, rows[0].seeds) == (-1.1, "images", 1)


def test_seeds_of_a_cell_are_one_row() -> None:
    (row,) = ranking([shown("a", gap) for gap in (0.1, 0.2, 0.4)])
    expected = gap_over_seeds([0.1, 0.2, 0.4])
    assert row.gap == expected and row.seeds == 3
    assert row.gap.mean == pytest.approx(0.7 / 3)


def test_a_long_table_points_to_the_whole_one() -> None:
    rows = ranking([shown(f"cell {k:02}", k / 100) for k in range(40)])
    text = as_markdown(rows)
    assert "`cell 11`" in text and "`cell 12`" not in text
    assert "and 28 more in `ranking.csv`" in text
    assert len(as_csv(rows).splitlines()) == 41
