"""A sweep's own run ranks its cells as the terminal does: mean and interval over seeds."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.synthetic import small, write_sweep
from tread_lab.frames import cells_frame, metric_columns, trials_frame
from tread_lab.records.lab import Lab
from tread_lab.tracking.sweep_run import Ranking


def ranking(lab: Lab) -> Ranking:
    found = Ranking.of(trials_frame(lab, "placement"))
    assert found is not None
    return found


def test_cells_stand_in_the_order_of_their_gap_beside_its_interval(tmp_path: Path) -> None:
    lab = write_sweep(tmp_path, small(seeds=(0, 1, 2)))
    rows = ranking(lab).rows
    assert list(rows["gap/heldout"]) == sorted(rows["gap/heldout"])
    best = rows[rows["cell"] != "dense"].iloc[0]
    cells = cells_frame(trials_frame(lab, "placement")).set_index("cell").loc[best["cell"]]
    assert tuple(best[["gap/heldout", "low", "high"]]) == pytest.approx(
        tuple(cells[["gap/heldout", "gap/heldout:low", "gap/heldout:high"]])
    )
    assert (best["interval over"], best["seeds"]) == ("seeds", 3)


def test_cells_without_a_number_are_not_ranked(tmp_path: Path) -> None:
    states = {(2, 8): "failed"}
    lab = write_sweep(tmp_path, small(states=states))
    assert not any(cell.startswith("2->8") for cell in ranking(lab).rows["cell"])


def test_before_anything_is_measured_there_is_no_ranking(tmp_path: Path) -> None:
    frame = trials_frame(write_sweep(tmp_path, small()), "placement")
    assert Ranking.of(frame.drop(columns=metric_columns(frame))) is None


def test_a_long_table_points_to_the_whole_one(tmp_path: Path) -> None:
    routes = tuple((0, end) for end in range(6)) + tuple((1, end) for end in range(1, 9))
    found = ranking(write_sweep(tmp_path, small(routes=routes)))
    assert len(found.rows) == 15
    text = found.markdown()
    assert text.startswith("ranked by gap/heldout, lower is better")
    assert "| 12 | `" in text and "| 13 | `" not in text
    assert "and 3 more in `ranking.csv`" in text
    assert len(found.csv().splitlines()) == 16
