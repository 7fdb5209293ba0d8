"""The differences between sweeps are the true ones, with the interval over their seeds."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.synthetic import Route, heldout_gap, small, write_sweep
from tread_lab.analysis.report.differences import differences
from tread_lab.analysis.report.report import write_report
from tread_lab.records.lab import Lab


def worse(route: Route) -> float:
    return heldout_gap(route) + 0.005


@pytest.fixture
def lab(tmp_path: Path) -> Lab:
    shift = {0: 0.001, 1: -0.001, 2: 0.0}
    write_sweep(tmp_path, small(name="a", seeds=(0, 1, 2)))
    other = small(name="b", seeds=(0, 1, 2), steps=800, heldout=worse, seed_shift=shift)
    return write_sweep(tmp_path, other)


def test_a_difference_is_that_of_the_same_seeds(lab: Lab) -> None:
    sheet = differences(lab, lab.known_sweeps("a", "b"))
    assert sheet is not None and sheet.heads[3].startswith("loss less a")
    rows = {row[0]: row[1:] for row in sheet.rows}
    assert rows.keys() == {"dense", "0→4", "2→8", "5→8"}
    assert rows["dense"][2].startswith("0")
    for route in ("0→4", "2→8", "5→8"):
        assert rows[route][2].endswith("0.0050 ± 0.0025")  # t(2) 0.001 / sqrt(3)
    assert {(row[3], row[4]) for row in rows.values()} == {("3 seeds", "2.00")}


def test_one_sweep_and_sweeps_that_share_all_differ_in_nothing(lab: Lab) -> None:
    write_sweep(lab.root, small(name="c", routes=((2, 8),), seeds=(0, 1, 2)))
    assert differences(lab, lab.sweep("a")) is None
    assert differences(lab, lab.known_sweeps("a", "c")) is None


def test_one_report_is_of_both(lab: Lab, no_figures: None) -> None:
    path = write_report(lab, "a", "b")
    assert path == lab.sweep("a").path / "report-with-b.html"
    text = path.read_text(encoding="utf-8")
    assert 'id="between"' in text and "tread-lab report a b" in text
