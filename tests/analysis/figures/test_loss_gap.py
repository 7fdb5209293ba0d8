"""Gaps against length and over steps equal the truth that was written into the records."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pandas as pd
import pytest
from matplotlib.text import Text

from tests.synthetic import train_gap
from tread_lab.analysis.figures import style
from tread_lab.analysis.figures.loss_gap import StepGaps, draw_gap_over_steps, gap_over_steps
from tread_lab.records.lab import Lab
from tread_lab.records.run_state import RunState
from tread_lab.results import NO_RESULT, history_frame


@pytest.fixture(scope="module")
def history(paper_lab: Lab) -> pd.DataFrame:
    return history_frame(paper_lab, "placement")


def test_diverged_baseline_compares_nothing(
    paper_frame: pd.DataFrame, history: pd.DataFrame
) -> None:
    beside = (paper_frame["cell"] == "2->8 s=0.5") | (paper_frame["cell"] == "0->4 s=0.5")
    why = NO_RESULT[RunState.DIVERGED]
    frame = paper_frame.assign(reason=paper_frame["reason"].mask(beside, why))
    lost = {gap.name for gap in gap_over_steps(paper_frame, history)}
    lost -= {gap.name for gap in gap_over_steps(frame, history)}
    assert lost == {"2->8 s=0.5", "0->4 s=0.5"}


def test_loss_gap_averages_all_seeds(paper_frame: pd.DataFrame, history: pd.DataFrame) -> None:
    two = paper_frame.assign(cell=paper_frame["cell"].replace("0->5 s=0.5", "0->4 s=0.5"))
    ends = {gap.name: gap.gaps[-1] for gap in gap_over_steps(two, history, halflife=1e-6)}
    assert ends["0->4 s=0.5"] == pytest.approx((train_gap((0, 4)) + train_gap((0, 5))) / 2)
    lost = two.assign(state=two["state"].mask(two["route"] == "0->5", "failed"))
    assert "0->4 s=0.5" not in {gap.name for gap in gap_over_steps(lost, history)}
    baseline = paper_frame[paper_frame["role"] == "baseline"]["run"].iloc[0]
    assert gap_over_steps(paper_frame, history[history["run"] != baseline]) == []


def test_names_of_close_curves_do_not_overlap() -> None:
    ends = [0.0, 0.001, 0.0011, 0.0012, 0.0012, 0.009]
    curves = [
        StepGaps(f"0->{k}", k, np.array([1, 2]), np.array([0, end])) for k, end in enumerate(ends)
    ]
    fig, (ax,) = style.figure()
    draw_gap_over_steps(curves, ax)
    fig.draw_without_rendering()
    boxes = [Text.get_window_extent(text) for text in ax.texts]  # without lines to the curves
    assert len(boxes) == len(ends)
    assert not any(one.overlaps(other) for one, other in combinations(boxes, 2))
