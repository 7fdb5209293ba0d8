"""What the page claims of a metric follows from the metric's nature; what ended badly is told."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pandas as pd
import pytest

from tests.synthetic import FD, Synthetic, small, write_sweep
from tread_lab.dashboards import cell_map, views
from tread_lab.frames import trials_frame
from tread_lab.records.lab import Lab
from tread_lab.records.status import RunState


@pytest.fixture
def frame(tmp_path: Path) -> pd.DataFrame:
    sweep = small(similarity=True)
    return trials_frame(write_sweep(tmp_path, sweep), "placement")


CLAIMS = {  # metric -> title, legend, whether there is a Pareto front
    "gap/heldout": (", difference to dense", "blue is better than dense", True),
    FD: (", difference to dense", "blue is better than dense", True),
    "gap/train": (
        ", routed forward less the dense baseline",
        "purple is less, green is more: no measure of quality",
        False,
    ),
    "gap/route": (
        ", routed less dense forward of the same run",
        "purple is less, green is more: no measure of quality",
        False,
    ),
    "heldout/loss_routed": (", the value itself", "no measure of quality", False),
    "similarity/adjacent": (
        ", difference to dense",
        "purple is less, green is more: no measure of quality",
        False,
    ),
    "cost/train_flops": (", difference to dense", "blue costs less than dense", False),
    "throughput/images_per_s": (", difference to dense", "blue is faster than dense", False),
}


@pytest.mark.parametrize("metric", CLAIMS)
def test_title_legend_and_front_follow_the_nature(frame: pd.DataFrame, metric: str) -> None:
    title, legend, front = CLAIMS[metric]
    tree = cell_map.cells(frame, metric)
    assert tree["meaning"]["title"] == metric + title
    assert tree["meaning"]["legend"] == legend
    assert (tree["pareto"] is not None) == front
    assert all(value is not None for value in tree["value"][1:])


def test_a_metric_that_nobody_declared_is_neither(frame: pd.DataFrame) -> None:
    shown = frame.assign(**{"sharpness@1k": [1.0, 2.0, 3.0, 4.0]})
    tree = cell_map.cells(shown, "sharpness@1k")
    assert tree["meaning"]["sign"] == 0 and "no measure of quality" in tree["meaning"]["legend"]
    assert tree["pareto"] is None


def test_a_metric_that_dense_runs_lack_shows_its_values(frame: pd.DataFrame) -> None:
    shown = frame.assign(**{"depth/used": [float("nan"), 2.0, 3.0, 4.0]})
    tree = cell_map.cells(shown, "depth/used")
    assert (tree["meaning"]["shows"], tree["value"]) == ("value", [None, 2.0, 3.0, 4.0])
    alone = frame[frame["role"] == "trial"].assign(baseline=None)  # of a sweep without baseline
    assert None not in cell_map.cells(alone, "heldout/loss")["value"]


@pytest.mark.parametrize(
    ("axis", "metric"), [("train.steps", "heldout/loss"), ("process", "gap/heldout")]
)
def test_beside_several_baselines_the_front_is_by_what_cells_are_ranked_by(
    tmp_path: Path, axis: str, metric: str
) -> None:
    frame = trials_frame(write_sweep(tmp_path, small(budgets=(400, 800))), "placement")
    frame = frame.assign(process=frame["train.steps"].map(str))
    frame.attrs["axes"] = ["start", "end", axis]
    assert cell_map.cells(frame, "gap/heldout")["pareto"]["metric"] == metric


def test_cells_of_every_list_of_a_search_are_tried_once_they_are_there(tmp_path: Path) -> None:
    lab = write_sweep(tmp_path, small())
    plan = lab.sweep("placement").plan()
    dense, first, second, _ = plan.trials
    second = replace(second, cell={"start": 2, "end": 8})
    ends = ((2, 8), (3, 8), (0, 4))  # of the last one the other list's cell was tried
    listed = (first.cell, *({"start": start, "end": end} for start, end in ends))
    plan = replace(plan, search={"sampler": "tpe"}, space=listed, trials=(dense, first, second))
    tree = cell_map.cells(trials_frame(lab, "placement"), "gap/heldout", plan)
    assert tree["search"]["names"] == ["3->8", "0->4"]


def test_an_axis_that_a_cell_does_not_set_has_a_place_for_it(frame: pd.DataFrame) -> None:
    frame = frame.assign(route="2->8", start=2, end=8, bypass=[None, None, "sprint", "mask"])
    frame.attrs["axes"] = ["start", "end", "bypass"]
    tree = cell_map.cells(frame, "gap/heldout")
    assert tree["at"] == [[-1], [2], [0], [1]]
    (bypass,) = tree["dimensions"]
    assert bypass["values"] == ["sprint", "mask", "not set"]


def test_a_dense_cell_has_no_route_and_makes_no_dimension_of_one(
    frame: pd.DataFrame, tmp_path: Path
) -> None:
    rates = frame.assign(route="2->8", start=2.0, end=8.0, rate=[0, 0, 0.25, 0.5])
    rates.loc[rates["rate"] == 0, ["route", "start", "end"]] = "dense", None, None
    rates.attrs["axes"] = ["rate"]
    (rate,) = cell_map.cells(rates, "gap/heldout")["dimensions"]
    assert rate["values"] == [0, 0.25, 0.5]
    rates.loc[3, "start"] = 4
    start, rate = cell_map.cells(rates, "gap/heldout")["dimensions"]
    assert start["values"] == [2, 4, "no route"]
    routes = tuple({"route": route, "rate": 0.5} for route in ("2->8", "4->8", "3->8"))
    plan = Lab(tmp_path).sweep("placement").plan()
    searched = replace(plan, search={"sampler": "tpe"}, space=routes)
    assert cell_map.cells(rates, "gap/heldout", searched)["search"]["untried"] == 3 * [[-1, 2]]


def test_cells_beside_a_diverged_baseline_say_so(tmp_path: Path) -> None:
    lab = diverged_baseline(tmp_path)
    frame = trials_frame(lab, "placement")
    tree = cell_map.cells(frame, "heldout/loss")
    assert tree["state"] == ["diverged", "uncompared", "uncompared", "uncompared"]
    assert tree["reason"][1] == "its baseline diverged: there is nothing to compare with"
    rows = views.failures(frame)
    assert [(row["number"], row["state"]) for row in rows] == [
        (0, "diverged"),
        (1, "completed"),
        (2, "completed"),
        (3, "completed"),
    ]


def test_cells_whose_evaluation_failed_are_no_failures_of_dense(tmp_path: Path) -> None:
    frame = trials_frame(write_sweep(tmp_path, small(states={(2, 8): "failed"})), "placement")
    assert cell_map.cells(frame, "gap/heldout")["state"][1:] == ["completed", "failed", "completed"]
    frame["reason"] = ["no weights", "no weights", "", ""]  # of evaluations
    alone = ["completed", "uncompared", "failed", "completed"]
    assert cell_map.cells(frame, None)["state"] == alone
    assert cell_map.cells(frame, "gap/heldout")["state"][1] == "completed", "it has this number"


def test_a_cell_with_a_missing_seed_has_no_number(tmp_path: Path) -> None:
    sweep = small(seeds=(0, 1), states={((2, 8), 1): "failed"})
    tree = cell_map.cells(trials_frame(write_sweep(tmp_path, sweep), "placement"), "gap/heldout")
    at = tree["name"].index("2->8 s=0.5")
    for column in ("value", "low", "high"):
        assert tree[column][at] is None
    assert tree["value"].count(None) == 1 and tree["value"][0] == 0.0  # the baseline's own
    ranked = [tree["name"][k] for k in tree["order"]]
    assert ranked == ["dense", "5->8 s=0.5", "0->4 s=0.5", "2->8 s=0.5"]


def test_the_first_metric_is_the_one_ranking_key(tmp_path: Path) -> None:
    sweep = small(budgets=(200, 400))  # baselines of two kinds
    frame = trials_frame(write_sweep(tmp_path, sweep), "placement")
    assert views.choices(frame)[:2] == ["heldout/loss", "gap/heldout"]
    assert (
        cell_map.meaning("heldout/loss", "value")["ranking"] == "Ranked by heldout/loss, best first"
    )


def diverged_baseline(root: Path) -> Lab:
    """Three completed routes whose dense run diverged."""
    sweep: Synthetic = small()
    lab = write_sweep(root, sweep)
    plan = lab.sweep("placement").plan()
    lab.run(plan.trials[0].run).finish(RunState.DIVERGED, step=200, reason="diverged on purpose")
    return lab


def test_names_leave_out_what_all_trials_share(frame: pd.DataFrame, tmp_path: Path) -> None:
    assert cell_map.cells(frame, "gap/heldout")["short"] == ["dense", "0->4", "2->8", "5->8"]
    lab = write_sweep(tmp_path / "two", small(rates=(0.25, 0.5)))
    two = cell_map.cells(trials_frame(lab, "placement"), "gap/heldout")
    assert two["short"] == two["name"]
