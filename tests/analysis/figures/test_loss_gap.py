"""Gaps against length and over steps equal the truth that was written into the records."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from tests.synthetic import train_gap
from tread_lab.analysis.figures.loss_gap import (
    gap_over_steps,
    steps_caption,
)
from tread_lab.records.lab import Lab
from tread_lab.records.run_state import RunState
from tread_lab.results import NO_RESULT, history_frame


@pytest.fixture(scope="module")
def history(paper_lab: Lab) -> pd.DataFrame:
    return history_frame(paper_lab, "placement")


def test_no_run_is_compared_with_what_a_diverged_baseline_logged(
    paper_frame: pd.DataFrame, history: pd.DataFrame
) -> None:
    beside = (paper_frame["cell"] == "2->8 s=0.5") | (paper_frame["cell"] == "0->4 s=0.5")
    why = NO_RESULT[RunState.DIVERGED]
    frame = paper_frame.assign(reason=paper_frame["reason"].mask(beside, why))
    lost = {gap.name for gap in gap_over_steps(paper_frame, history)}
    lost -= {gap.name for gap in gap_over_steps(frame, history)}
    assert lost == {"2->8 s=0.5", "0->4 s=0.5"}


def test_only_steps_that_both_runs_logged_are_compared(
    paper_frame: pd.DataFrame, history: pd.DataFrame
) -> None:
    trial = paper_frame[paper_frame["route"] == "2->8"]["run"].iloc[0]
    short = history[(history["run"] != trial) | (history["step"] <= 200)]
    gaps = gap_over_steps(paper_frame, short)
    steps = {gap.name: gap.steps.max() for gap in gaps}
    two = [gap for gap in gaps if gap.name in ("2->8 s=0.5", "0->9 s=0.5")]
    assert "At step 200 the shortest" in steps_caption(two)
    assert steps_caption(two).endswith(" at step 400.")
    equal = [gap for gap in reversed(gaps) if gap.name in ("0->6 s=0.5", "2->8 s=0.5")]
    assert "the lowest curve (2→8 s=0.5)" in steps_caption(equal), "both skip seven blocks"
    assert steps_caption(equal[:1]).count("2→8 s=0.5") == 1
    assert steps.pop("2->8 s=0.5") == 200 and set(steps.values()) == {400}


def test_all_seeds_are_averaged_and_a_baseline_without_a_log_gives_no_curve(
    paper_frame: pd.DataFrame, history: pd.DataFrame
) -> None:
    two = paper_frame.assign(cell=paper_frame["cell"].replace("0->5 s=0.5", "0->4 s=0.5"))
    ends = {gap.name: gap.gaps[-1] for gap in gap_over_steps(two, history, halflife=1e-6)}
    assert ends["0->4 s=0.5"] == pytest.approx((train_gap((0, 4)) + train_gap((0, 5))) / 2)
    lost = two.assign(state=two["state"].mask(two["route"] == "0->5", "failed"))
    assert "0->4 s=0.5" not in {gap.name for gap in gap_over_steps(lost, history)}
    baseline = paper_frame[paper_frame["role"] == "baseline"]["run"].iloc[0]
    assert gap_over_steps(paper_frame, history[history["run"] != baseline]) == []


def test_a_cell_that_minimises_another_loss_than_its_baseline_has_no_curve(
    paper_frame: pd.DataFrame, history: pd.DataFrame
) -> None:
    other = paper_frame["cell"] == "2->8 s=0.5"
    frame = paper_frame.assign(loss=np.where(other, "equation 0.1", None))
    lost = {gap.name for gap in gap_over_steps(paper_frame, history)}
    assert lost - {gap.name for gap in gap_over_steps(frame, history)} == {"2->8 s=0.5"}
