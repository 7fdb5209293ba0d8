"""Gaps against length and over steps equal the truth that was written into the records."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from tests.four_sweeps import ENDINGS
from tests.synthetic import PAPER_PLACEMENTS, train_gap
from tread_lab.analysis.figures.loss_gap import (
    gap_by_length,
    gap_over_steps,
    length_caption,
    steps_caption,
)
from tread_lab.frames import NO_RESULT, history_frame
from tread_lab.records.lab import Lab
from tread_lab.records.status import RunState


@pytest.fixture(scope="module")
def history(paper_lab: Lab) -> pd.DataFrame:
    return history_frame(paper_lab, "placement")


def test_gap_against_length_is_the_truth(paper_frame: pd.DataFrame) -> None:
    planned = gap_by_length(paper_frame)
    places = planned.take(planned.measured)
    assert set(places.routes) == set(PAPER_PLACEMENTS) - set(ENDINGS)
    assert places.value == pytest.approx([train_gap(route) for route in places.routes])
    lengths = [end - start + 1 for start, end in places.routes]
    assert list(places.length) == lengths == sorted(lengths)
    assert "over 12 routes: 0.99" in length_caption(planned)
    assert np.all((places.low < places.value) & (places.value < places.high))


def test_gap_over_steps_is_free_of_the_noise_that_both_runs_share(
    paper_frame: pd.DataFrame, history: pd.DataFrame
) -> None:
    gaps = gap_over_steps(paper_frame, history, halflife=1e-6)  # no smoothing
    measured = {f"{i}->{j} s=0.5" for i, j in set(PAPER_PLACEMENTS) - set(ENDINGS)}
    assert {gap.name for gap in gaps} == measured
    assert [gap.length for gap in gaps] == sorted(gap.length for gap in gaps)
    for gap in gaps:
        start, end = map(int, gap.name.removesuffix(" s=0.5").split("->"))
        assert list(gap.steps) == list(range(20, 401, 20))
        assert gap.gaps == pytest.approx(train_gap((start, end)) * gap.steps / 400, abs=1e-12)


def test_no_run_is_compared_with_what_a_diverged_baseline_logged(
    paper_frame: pd.DataFrame, history: pd.DataFrame
) -> None:
    beside = (paper_frame["cell"] == "2->8 s=0.5") | (paper_frame["cell"] == "0->4 s=0.5")
    why = NO_RESULT[RunState.DIVERGED]
    frame = paper_frame.assign(reason=paper_frame["reason"].mask(beside, why))
    lost = {gap.name for gap in gap_over_steps(paper_frame, history)}
    lost -= {gap.name for gap in gap_over_steps(frame, history)}
    assert lost == {"2->8 s=0.5", "0->4 s=0.5"}


def test_smoothing_is_an_exponential_mean_of_the_half_life(
    paper_frame: pd.DataFrame, history: pd.DataFrame
) -> None:
    raw = gap_over_steps(paper_frame, history, halflife=1e-6)[0].gaps
    smooth = gap_over_steps(paper_frame, history, halflife=2.0)[0].gaps
    weights = 0.5 ** (np.arange(len(raw))[::-1] / 2.0)
    assert smooth[-1] == pytest.approx(np.average(raw, weights=weights))


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
    assert steps.pop("2->8 s=0.5") == 200 and set(steps.values()) == {400}


def test_seeds_are_averaged_and_a_baseline_without_a_log_gives_no_curve(
    paper_frame: pd.DataFrame, history: pd.DataFrame
) -> None:
    baseline = paper_frame[paper_frame["role"] == "baseline"]["run"].iloc[0]
    assert gap_over_steps(paper_frame, history[history["run"] != baseline]) == []


def test_a_trial_that_is_its_own_baseline_has_no_curve(
    paper_frame: pd.DataFrame, history: pd.DataFrame
) -> None:
    baseline = paper_frame[paper_frame["role"] == "baseline"]
    run = baseline["run"].iloc[0]
    own = baseline.assign(role="trial", cell="dense s=0", baseline=run)  # a rate of 0
    frame = pd.concat([paper_frame, own], ignore_index=True)
    names = [gap.name for gap in gap_over_steps(frame, history)]
    assert len(names) == 12
    assert "dense s=0" not in names
