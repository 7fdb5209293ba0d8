"""Fronts against FLOPs, and gaps against what is saved: joules where metered, else device-hours."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from tests.synthetic import small, write_sweep
from tread_lab.analysis.figures.pareto import (
    Front,
    draw_front,
    pareto,
    pareto_caption,
    pareto_front,
    savings,
    savings_caption,
)
from tread_lab.analysis.figures.style import PAGE, figure
from tread_lab.frames import trials_frame
from tread_lab.frames.ranking_table import formatted, ranking
from tread_lab.records.status import RunState
from tread_lab.specs import UserError


def test_a_front_is_what_no_other_beats() -> None:
    cost = np.array([1.0, 2.0, 2.0, 3.0, 4.0])
    value = np.array([5.0, 4.0, 3.0, 3.0, 1.0])
    assert list(pareto_front(cost, value)) == [True, False, True, False, True]
    assert list(pareto_front(cost, -value, lower=False)) == [True, False, True, False, True]


def test_names_cover_neither_the_front_nor_a_point(paper_frame: pd.DataFrame) -> None:
    points = pareto(paper_frame)
    _, (ax,) = figure()
    draw_front(points, ax)
    ax.figure.draw_without_rendering()
    boxes = [text.get_window_extent() for text in ax.texts if text.get_text()]
    (steps,) = (line for line in ax.lines if line.get_label() == "front")
    front = steps.get_transform().transform_path(steps.get_path())
    assert not any(front.intersects_bbox(box, filled=False) for box in boxes)
    dots = ax.transData.transform(np.stack([points.cost, points.value], axis=1))
    assert not any(box.contains(*dot) for box in boxes for dot in dots)


@pytest.mark.parametrize("metric", ["gap/train", "similarity/adjacent", "cost/train_seconds"])
def test_what_is_no_quality_has_no_front(paper_frame: pd.DataFrame, metric: str) -> None:
    with pytest.raises(UserError, match="is no measure of quality, so it has no Pareto front"):
        pareto(paper_frame, metric)


def saved(frame: pd.DataFrame, metric: str = "gap/heldout") -> Front:
    found = savings(frame, metric)
    assert found is not None and found.names[-1] == "dense"
    assert (found.cost[-1], found.value[-1], found.share[-1]) == (0, 0, 0)
    return found


def test_each_trial_saves_of_its_own_baseline(metered_frame: pd.DataFrame) -> None:
    dense = metered_frame["role"] == "baseline"
    other = metered_frame[dense | (metered_frame["run"] == "2->8")].copy()
    other["run"], other["seed"] = other["run"] + "1", 1
    other["baseline"] = other["baseline"].map({"dense": "dense1"})
    other["energy/joules"] = [80_000.0, 40_000.0]
    frame = pd.concat([metered_frame, other], ignore_index=True)
    frame.attrs |= metered_frame.attrs
    found = saved(frame)
    assert found.cost[0] == (18_000 + 40_000) / 2
    assert found.share[0] == pytest.approx((0.3 + 0.5) / 2)


def test_a_run_of_two_devices_spends_the_hours_of_both(tmp_path: Path) -> None:
    lab = write_sweep(tmp_path, small())
    hours = saved(trials_frame(lab, "placement")).cost[:-1]
    for trial in lab.sweep("placement").plan().trials:
        run = lab.run(trial.run)
        metrics = (run.result() or {})["metrics"]
        run.finish(RunState.COMPLETED, step=400, metrics=metrics, devices=2)
    frame = trials_frame(lab, "placement")
    assert saved(frame).cost[:-1] == pytest.approx(2 * hours)
    assert frame[frame["role"] == "trial"].attrs["devices"] is frame.attrs["devices"], "no copy"


@pytest.mark.parametrize("metered", [0, 2, 3])
def test_device_hours_stand_for_joules_that_few_runs_have(
    metered: int, metered_frame: pd.DataFrame
) -> None:
    metered_frame.loc[1 + metered :, "energy/joules"] = np.nan
    found = saved(metered_frame)
    if metered == 3:
        assert list(found.cost[:-1]) == [18_000, 24_000, 10_000]
        assert "Not metered: 0\u219210 and 5\u21926." in savings_caption(found, [])
    else:
        assert found.saved == "cost/device_hours"
        assert found.cost[:-1] == pytest.approx([0.5, 0.8, 0.3, 0.9, -0.1])


def test_a_baseline_without_a_meter_leaves_nothing_saved(metered_frame: pd.DataFrame) -> None:
    metered_frame.loc[0, "energy/joules"] = np.nan
    assert saved(metered_frame).saved == "cost/device_hours"
    assert savings(metered_frame.drop(columns=["energy/joules", "cost/train_seconds"])) is None


def test_the_front_is_of_cells_that_neither_dense_nor_another_beats(
    metered_frame: pd.DataFrame,
) -> None:
    found = saved(metered_frame)
    assert list(found.front) == [True, True, *[False] * 4]  # 2->8 is better and cheaper than dense
    text = savings_caption(found, ["4->8"])
    assert "good for less energy): 2\u21928 (costs 30% less), 0\u21928 (costs 40% less)." in text
    assert text.endswith("Without room for a name: 4\u21928.")
    assert saved(metered_frame[metered_frame["run"] != "2->8"]).front[-1]
    flops = dict(zip(metered_frame["run"], (12e12, 9e12, 8e12, 10e12, 7e12, 11e12)))
    frame = metered_frame.assign(**{"cost/train_flops": metered_frame["run"].map(flops)})
    assert "not on it: another cell costs less and is as good" in pareto_caption(pareto(frame))
    alone = pareto_caption(pareto(frame[frame["run"] != "2->8"]))
    assert "0\u21928 s=0.5 (0.67), 4\u21928 s=0.5 (0.83), dense (1.00). No cell" in alone
    assert "The dense run is on it: no cheaper cell is as good." in alone
    scores = metered_frame.assign(**{"is@50k": [10.0, 9.0, 12.0, 9.5, 11.0, 13.0]})
    more_is_better = saved(scores, "is@50k")
    assert list(more_is_better.value[:-1]) == [-1, 2, -0.5, 1, 3]
    assert list(more_is_better.front[:-1]) == [False, True, False, False, True]


@pytest.mark.parametrize(
    ("factor", "unit"), [(1e-3, "energy saved relative to dense (J)"),
                         (1.0, "energy saved relative to dense (kJ)"),
                         (1e6, "energy saved relative to dense (GJ)"),
                         (None, "device-hours saved relative to dense (h)")]
)  # fmt: skip
def test_what_is_saved_has_the_unit_that_suits_it(
    factor: float | None, unit: str, metered_frame: pd.DataFrame
) -> None:
    joules = metered_frame.pop("energy/joules")
    if factor is not None:
        metered_frame["energy/joules"] = factor * joules
    _, (ax,) = figure(width=PAGE)
    assert draw_front(saved(metered_frame), ax) == [] and ax.get_xlabel() == unit


def test_hours_that_a_busy_machine_saved_are_starred_and_not_on_the_front(
    metered_frame: pd.DataFrame,
) -> None:
    """0->8 takes .29 of dense's hours at .90 of its FLOPs; 4->8 starts from another run."""
    frame = metered_frame.drop(columns="energy/joules")
    hours = {"dense": 2.0, "2->8": 1.5, "0->8": 0.58, "4->8": 1.7, "0->10": 1.1, "5->6": 2.1}
    work = 1e12 * frame["route"].map(hours | {"0->8": 1.8})
    frame["cost/train_seconds"] = 3600 * frame["route"].map(hours)
    frame["cost/train_flops"], frame["cost/family_flops"] = work, work
    frame.loc[frame["route"] == "4->8", "cost/family_flops"] *= 2
    found = saved(frame)
    assert found.names[:-1] == ("2->8", "0->8*", "4->8", "0->10", "5->6")
    assert not found.front[1] and found.front[0]
    text = savings_caption(found, [])
    assert "* FLOPs do not explain the hours" in text
    assert "What was spent on runs that a cell starts from is not counted." in text
    unknown = frame.drop(columns=["cost/train_flops", "cost/family_flops"])
    assert "* The hours" not in savings_caption(saved(unknown), [])
    texts = formatted(ranking(frame), "gap/heldout").set_index("cell")["device-hours / dense"]
    assert texts["0->8 s=0.5"] == "0.29 (disturbed)" and texts["2->8 s=0.5"] == "0.75"
