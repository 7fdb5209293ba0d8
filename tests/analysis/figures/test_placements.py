"""Placements are compared by the sign of their metric, and their captions count what differs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from tests.four_sweeps import ENDINGS
from tests.synthetic import FD, PAPER_PLACEMENTS, fd_gap, heldout_gap
from tread_lab.analysis.figures.curves import rates
from tread_lab.analysis.figures.effects import cell_gaps, two_ways
from tread_lab.analysis.figures.loss_gap import gap_and_quality, quality_caption
from tread_lab.analysis.figures.pareto import pareto
from tread_lab.analysis.figures.placement_figures import agreement_text
from tread_lab.analysis.figures.placements import (
    Placements,
    best_route,
    commonest,
    panels,
    placements,
    rank_correlation,
)
from tread_lab.analysis.figures.style import holds_zero
from tread_lab.analysis.tables import published
from tread_lab.analysis.tables.paper_tables import sweep_table
from tread_lab.frames.ranking_table import ranking
from tread_lab.specs import UserError


def places(metric: str) -> Placements:
    """Three routes from block 0: below zero, around it, above it."""
    value, low, high = np.array([[-0.2, 0.1, 0.2], [-0.3, -0.1, 0.1], [-0.1, 0.3, 0.3]])
    start, end = np.array([[0, 0, 0], [2, 3, 4]])
    return Placements(metric, start, end, value, low, high, np.full(3, "completed"))


@pytest.mark.parametrize(("metric", "best"), [("gap/heldout", "0→2"), ("delta/is@10k", "0→4")])
def test_the_best_follows_the_sign_of_the_metric(metric: str, best: str) -> None:
    two_above = places(metric).take(np.array([0, 2, 2]))
    caption = best_route(two_above)
    assert caption.startswith(f"Best is {best}:")
    counts = "1 better, 2 worse." if best == "0→2" else "2 better, 1 worse."
    assert caption.endswith(counts)


@pytest.mark.parametrize(("metric", "sign"), [(FD, 1), ("is@10k", -1)])
def test_an_order_is_from_better_to_worse_whichever_way_the_metric_goes(
    metric: str, sign: int, paper_frame: pd.DataFrame
) -> None:
    frame = paper_frame.assign(**{metric: sign * paper_frame[FD]})
    gap, quality = gap_and_quality(frame, metric)
    said = quality_caption(
        replace(gap, value=np.arange(12.0)), replace(quality, value=sign * np.arange(12.0))
    )
    assert said.endswith("; routes with a larger gap have worse samples.")
    text = agreement_text(placements(frame, metric))
    assert text.endswith(
        "12 common routes: 0.888 (p = 0.00012); the published order holds here too."
    )


@pytest.mark.parametrize(("count", "chance"), [(4, ""), (5, " (p = 0.017)"), (8, " (p = 5e-05)")])
def test_the_chance_of_an_order_is_exact_and_left_out_of_few_routes(
    count: int, chance: str
) -> None:
    routes = list(published.FIG8)[:count]
    start, end = np.array(routes).T
    value, none = np.array([published.FIG8[route] for route in routes]), np.full(count, np.nan)
    same = Placements(FD, start, end, value, none, none, np.full(count, "completed"))
    assert f"{count} common routes: 1{chance}; the published order holds" in agreement_text(same)


def test_of_equally_common_values_the_smallest_counts() -> None:
    assert commonest(np.array([8, 3, 8, 3, 5])) == 3
    assert commonest(np.array([], dtype=np.int64)) == 0


def test_an_interval_that_ends_at_zero_holds_it() -> None:
    low, high = np.array([-1.0, 0.0, 0.1, -2.0, np.nan]), np.array([0.0, 1.0, 0.2, -1.0, np.nan])
    assert holds_zero(low, high).tolist() == [True, True, False, False, False]


def test_a_rank_correlation_needs_three_points_and_some_spread() -> None:
    up = np.array([1.0, 2.0, 5.0])
    assert rank_correlation(up, -up) == pytest.approx(-1)
    assert np.isnan(rank_correlation(up[:2], up[:2]))
    assert np.isnan(rank_correlation(up, np.ones(3)))


def test_a_route_without_one_of_two_numbers_is_no_pair(paper_frame: pd.DataFrame) -> None:
    frame = paper_frame.copy()
    frame.loc[frame["route"] == "2->8", FD] = np.nan
    gap, quality = gap_and_quality(frame, FD)
    assert len(gap.routes) == 11 and (2, 8) not in gap.routes and gap.routes == quality.routes
    assert np.isfinite(gap.value).all() and np.isfinite(quality.value).all()


def test_placements_are_the_true_differences_or_say_why_not(paper_frame: pd.DataFrame) -> None:
    gaps, samples = (placements(paper_frame, metric) for metric in ("gap/heldout", FD))
    assert samples.metric == f"delta/{FD}" and tuple(gaps.routes) == PAPER_PLACEMENTS
    for k, route in enumerate(gaps.routes):
        if route in ENDINGS:
            assert gaps.states[k] == ENDINGS[route] and np.isnan(gaps.value[k])
        else:
            assert gaps.value[k] == pytest.approx(heldout_gap(route))
            assert gaps.low[k] < gaps.value[k] < gaps.high[k]
            assert samples.value[k] == pytest.approx(fd_gap(route))
    assert gaps.best is not None and gaps.routes[gaps.best] == (2, 8)
    assert gaps.measured_as == "95% over 32 images of 1 seed"
    frame = paper_frame.copy()
    frame.loc[frame["route"] == "2->8", FD] = np.nan
    assert placements(frame, FD).states[gaps.routes.index((2, 8))] == "unmeasured"
    dense = frame[frame["role"] == "baseline"].assign(role="trial", baseline=frame["run"])
    assert placements(pd.concat([frame, dense]), FD).routes == gaps.routes


def test_a_second_axis_is_refused_by_name_and_split_by_panels(seeds_frame: pd.DataFrame) -> None:
    with pytest.raises(UserError, match=r"0->4 s=0\.5 and 0->4 s=0\.75"):
        placements(seeds_frame, "gap/heldout")
    found = panels(seeds_frame)
    assert [name for name, _ in found] == ["rate=0.5", "rate=0.75"]
    assert all((part["role"] == "baseline").sum() == 3 for _, part in found)
    assert sum((part["role"] == "trial").sum() for _, part in found) == 24
    whole = seeds_frame.assign(routes=seeds_frame["route"])
    whole.attrs |= {"axes": ["routes", "rate"]}
    assert [name for name, _ in panels(whole)] == ["rate=0.5", "rate=0.75"]


@pytest.mark.parametrize(
    "numbers",
    [cell_gaps, pareto, placements, ranking, rates, sweep_table, two_ways],
)
def test_an_unknown_metric_is_named_with_the_nearest(
    numbers: Callable[[pd.DataFrame, str], object], paper_frame: pd.DataFrame
) -> None:
    with pytest.raises(UserError, match="did you mean 'gap/heldout'"):
        numbers(paper_frame, "gap/heldot")


def test_a_panel_is_named_by_what_its_trials_set_alone(seeds_frame: pd.DataFrame) -> None:
    frame = seeds_frame.assign(bypass=pd.NA)
    frame.loc[frame["rate"] == 0.75, "bypass"] = "sprint"
    frame.attrs |= {"axes": ["start", "end", "bypass"]}
    assert [name for name, _ in panels(frame)] == ["as the experiment is", "bypass=sprint"]
