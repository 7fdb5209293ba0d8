"""Gaps against length and over steps equal the truth that was written into the records."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from tests.analysis.conftest import ENDINGS
from tests.synthetic import PAPER_PLACEMENTS, train_gap
from tread_lab.analysis.figures.loss_gap import (
    draw_gap_by_length,
    draw_gap_over_steps,
    gap_by_length,
    gap_over_steps,
    length_caption,
    steps_caption,
)
from tread_lab.analysis.figures.sentences import number
from tread_lab.analysis.figures.style import figure
from tread_lab.frames import history_frame
from tread_lab.records.lab import Lab


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
    steps = {gap.name: gap.steps.max() for gap in gap_over_steps(paper_frame, short)}
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


def test_drawings_hold_what_was_computed(paper_frame: pd.DataFrame, history: pd.DataFrame) -> None:
    _, (left, right) = figure(columns=2)
    draw_gap_by_length(gap_by_length(paper_frame), left)
    points = [line for line in left.lines if line.get_marker() in "os^"]
    assert sum(len(line.get_xdata()) for line in points) == 12
    curves = gap_over_steps(paper_frame, history)
    draw_gap_over_steps(curves, right)
    assert len(right.lines) == 1 + len(curves)
    assert len({str(line.get_color()) for line in right.lines[1:]}) == len(curves)
    looks = {(c.length, line.get_linestyle()) for c, line in zip(curves, right.lines[1:])}
    assert len(looks) == len(curves) > len({c.length for c in curves})  # of one length, own dashes
    last = [line.get_ydata()[-1] * 1e-3 for line in right.lines[1:]]
    assert last == pytest.approx([curve.gaps[-1] for curve in curves])
    shortest, longest = (number(curve.gaps[-1], signed=True) for curve in (curves[0], curves[-1]))
    assert f"is {shortest} from the dense run's" in steps_caption(curves)
    assert shortest[0] in "+\N{MINUS SIGN}" and f" {longest}. Runs of" in steps_caption(curves)


def test_both_families_are_moved_aside_and_none_is_blue_or_orange(
    paper_frame: pd.DataFrame,
) -> None:
    gaps = gap_by_length(paper_frame)
    _, (ax,) = figure()
    draw_gap_by_length(gaps, ax)
    lines = [line for line in ax.get_lines() if line.get_label() in ("0$\\to j$", "$i\\to$8")]
    shifts = [{round(float(x) - round(float(x)), 2) for x in line.get_xdata()} for line in lines]
    assert shifts == [{-0.08}, {0.08}]
    assert {line.get_color() for line in lines} == {"#009E73", "#CC79A7"}
