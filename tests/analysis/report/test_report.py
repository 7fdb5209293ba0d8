"""The report holds every kind of figure a sweep can have, and its numbers are the records'."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.synthetic import small, write_sweep
from tread_lab.analysis.report.report import contents, write_report

pytestmark = pytest.mark.slow  # every figure is drawn


def test_states_and_endings_are_told(tmp_path: Path) -> None:
    states = {(0, 4): "failed", (5, 8): "diverged"}
    told = contents(write_sweep(tmp_path, small(states=states)), "placement")
    assert dict(told["states"]) == {"completed": 2, "failed": 1, "diverged": 1}
    assert [row[-1] for row in told["endings"].rows] == ["failed on purpose", "diverged on purpose"]


@pytest.mark.parametrize(
    ("sweep", "title"),
    [
        ({"rates": (0.25, 0.5)}, "All cells of the sweep"),
        ({"guided": True}, "Guidance: quality against the cost of an image"),
    ],
)
def test_every_kind_of_figure_has_its_place(
    sweep: dict[str, Any], title: str, tmp_path: Path
) -> None:
    lab = write_sweep(tmp_path, small(routes=((2, 8),), **sweep))
    path = write_report(lab, "placement")
    text = path.read_text(encoding="utf-8")
    assert title in text
    assert "<dt>selection rate s</dt>" in text and "arxiv.org/abs/2501.04765" in text
    assert "Ranked by gap/heldout" in text and "a row is a cell" in text
