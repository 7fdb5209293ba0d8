"""The table of a page has the report's strings, and numbers by which its rows are sorted."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.synthetic import small, write_sweep
from tread_lab.analysis.report.report import contents
from tread_lab.dashboards.pages import Pages
from tread_lab.dashboards.table import ranking_table
from tread_lab.frames import trials_frame
from tread_lab.records.lab import Lab


@pytest.fixture
def lab(tmp_path: Path) -> Lab:
    """Three routes at two rates, one failed, with gaps of either size."""
    routes = ((0, 4), (2, 8), (0, 10))
    return write_sweep(tmp_path, small(routes=routes, rates=(0.5, 0.75), states={(0, 4): "failed"}))


def test_every_text_of_the_report_stands_in_the_same_column_and_row(
    lab: Lab, no_figures: None
) -> None:
    frame = trials_frame(lab, "placement")
    said, shown = contents(lab, "placement")["ranking"], ranking_table(frame)
    place = [shown["heads"].index(head) for head in said.heads]
    assert [[row[k] for k in place] for row in shown["rows"]] == said.rows
    assert [shown["numeric"][k] for k in place] == said.numeric


def test_rows_are_sorted_by_whole_numbers_and_words_have_none(lab: Lab) -> None:
    frame = trials_frame(lab, "placement")
    flops = frame["cost/train_flops"]
    frame["cost/train_flops"] = flops.where(frame.index % 2 == 0, flops * 1e4)  # TFLOP and PFLOP
    table = ranking_table(frame, "cost/train_flops")
    by = dict(zip(table["heads"], table["numbers"]))
    measured = [value for value in by["cost/train_flops"] if value is not None]
    assert measured == sorted(measured) and len(measured) == 5
    assert by["rank"] == [1, 2, 3, 4, 5, None, None] and set(by["cell"]) == {None}
    assert by["gap"][-2:] == [None, None] and len(by["FLOPs / dense"]) == 7


def test_a_sweep_without_a_number_says_so_instead_of_ranking(tmp_path: Path) -> None:
    states = {None: "pending", (0, 4): "pending", (2, 8): "pending", (5, 8): "pending"}
    lab = write_sweep(tmp_path, small(states=states))
    assert "nothing has been measured" in Pages(lab).sweep("placement")["table"]["problem"]
