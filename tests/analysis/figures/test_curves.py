"""Numbers under the figures of rates, budgets, time to equal quality, Pareto fronts and samples."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from tests.synthetic import (
    FD,
    small,
    write_sweep,
)
from tread_lab.analysis import paper_tables
from tread_lab.analysis.figures.curves import (
    Curves,
    best_rate,
    cost_to_reach,
    draw_time_to_equal,
    over_training,
    published_time_to_equal,
    rates_caption,
    time_to_equal,
    training_metrics,
)
from tread_lab.analysis.figures.curves import factors_caption as factor_caption
from tread_lab.analysis.figures.points import bare_rows
from tread_lab.analysis.figures.style import figure
from tread_lab.results import STEP, steps_frame


def test_curve_needs_all_seeds(tmp_path: Path) -> None:
    lab = write_sweep(tmp_path, small(stages=(100,), seeds=(0, 1), states={((2, 8), 1): "failed"}))
    found = over_training(steps_frame(lab, "placement"), FD)["training steps"]
    states = {name: rows["state"].tolist() for name, rows in found.curves.items()}
    assert states.pop("2->8 s=0.5") == ["failed"] * 2
    assert [*states.values()] == [["completed"] * 2] * 3
    lost = found.rows[found.rows["value"].isna()]
    assert lost["curve"].tolist() == ["2->8 s=0.5"] * 2


def test_cost_to_reach_interpolates_logarithms() -> None:
    curve = bare_rows(x=[1.0, 100.0], value=[3.0, 1.0])
    assert cost_to_reach(curve, 2.0) == pytest.approx(10)
    assert np.isnan(cost_to_reach(curve, 3.5)) and np.isnan(cost_to_reach(curve, 0.5))
    assert cost_to_reach(curve[::-1], 2.0) == pytest.approx(10)


def test_published_factors_equal_the_printed() -> None:
    found = published_time_to_equal()
    assert [round(f.value) for f in found.factors] == [14, 37]
    printed = set(paper_tables.speed_ups()["factor"])
    assert {"14", "37"} <= printed
    _, (ax,) = figure(width=3.4)
    draw_time_to_equal(found, ax)
    ax.figure.draw_without_rendering()
    boxes = [text.get_window_extent() for text in ax.texts if text.get_text()]
    levels = [ax.transData.transform((1e3, factor.level))[1] for factor in found.factors]
    assert not any(box.y0 < level < box.y1 for box in boxes for level in levels)
    curves = [line.get_transform().transform_path(line.get_path()) for line in ax.lines]
    assert not any(curve.intersects_bbox(box, filled=False) for curve in curves for box in boxes)


def three_rates(metric: str) -> Curves:
    """One route at three rates: -1 at 0.25, +2 at 0.5."""
    return Curves(metric, bare_rows(curve="2->8", x=[0, 0.25, 0.5], value=[0, -1.0, 2.0]))


@pytest.mark.parametrize(("metric", "best"), [("delta/fid@10k", 1), ("delta/is@10k", 2)])
def test_less_or_more_is_better(metric: str, best: int) -> None:
    found = best_rate(three_rates(metric))
    assert found is not None and found["x"] == 0.25 * best
    assert rates_caption(three_rates(metric)).startswith(f"Best is s = {0.25 * best:g} on 2→8:")


METRIC = "fd[x]@1k"
STEPS = (100, 200, 400)
DENSE, ROUTED = {100: 9.0, 200: 7.0, 400: 5.0}, {100: 9.5, 200: 6.0, 400: 4.0}


def rows(role: str, cell: str, values: dict[int, float], seconds: float) -> pd.DataFrame:
    """One run of 400 steps of 16 images, measured at three steps."""
    steps = np.array(STEPS)
    gap = [values[s] - DENSE[s] if role == "trial" else np.nan for s in STEPS]
    return pd.DataFrame(
        {
            "run": cell,
            "role": role,
            "seed": 0,
            "state": "completed",
            "reason": "",
            "mixed": False,
            "baseline": "dense",
            "cell": [f"{cell} step={s}" for s in STEPS],
            STEP: steps,
            METRIC: [values[s] for s in STEPS],
            "gap/heldout": gap,
            "cost/train_flops": steps * seconds * 1e9,
            "cost/train_images": steps * 16.0,
            "cost/device_hours": steps * seconds / 3600,
        }
    )


@pytest.fixture
def stages() -> pd.DataFrame:
    parts = [rows("baseline", "dense", DENSE, 18.0), rows("trial", "2->8 s=0.5", ROUTED, 12.0)]
    frame = pd.concat(parts, ignore_index=True)
    frame.attrs |= {"axes": [STEP], "foreign": [], "planned": [METRIC], "schedules": []}
    return frame


def test_matched_lengths_are_no_curve(budget_frame: pd.DataFrame) -> None:
    assert len(training_metrics(budget_frame)) == 4
    one_each = budget_frame.drop_duplicates("route")
    assert training_metrics(one_each.assign(**{"train.steps": range(len(one_each))})) == []


def test_spend_axis_makes_a_curve(
    budget_frame: pd.DataFrame,
) -> None:
    steps = budget_frame["train.steps"].astype(str)
    cells = [c.replace(f"steps={s}", f"spend={s}") for c, s in zip(budget_frame["cell"], steps)]
    spent = budget_frame.assign(cell=cells, spend=budget_frame["train.steps"])
    spent.attrs |= {"axes": ["start", "end", "rate", "spend"]}
    metric = "fd[fashion16-v1]@1k"
    for frame in (budget_frame, spent):
        found = time_to_equal(frame, metric, cost="cost/train_flops")
        assert [(name, len(rows)) for name, rows in found.curves.items()] == [
            ("dense", 3), ("2->8 s=0.5", 3)
        ]  # fmt: skip
        assert len(found.factors) == 1 and metric in training_metrics(frame)


def of_two_seeds(stages: pd.DataFrame) -> pd.DataFrame:
    """The same numbers for another seed."""
    again = stages.assign(seed=1, run=stages["run"] + "x", baseline=stages["baseline"] + "x")
    both = pd.concat([stages.assign(seed=0), again], ignore_index=True)
    both.attrs |= stages.attrs
    return both


def test_factor_takes_two_seeds(stages: pd.DataFrame) -> None:
    found = time_to_equal(stages, METRIC, cost="cost/train_flops")
    assert found.factors == () and "two seeds or more" in factor_caption(found)
    both = of_two_seeds(stages)
    faster = (both["seed"] == 1) & (both["role"] == "trial")
    both.loc[faster, "cost/train_flops"] *= 0.8
    (factor,) = time_to_equal(both, METRIC, cost="cost/train_flops").factors
    assert factor.low < factor.value < factor.high


def test_ends_alone_are_no_curves(stages: pd.DataFrame) -> None:
    assert training_metrics(stages.drop(columns=STEP)) == []
    last = stages[stages[STEP] == max(STEPS)]
    assert time_to_equal(last, METRIC, cost="cost/train_flops").factors == ()


def test_stages_make_curves_over_training(stages: pd.DataFrame) -> None:
    found, images, hours = over_training(stages, METRIC).values()
    assert found.rows["x"].tolist() == [*STEPS] * 2
    assert images.rows["x"].tolist() == [1600, 3200, 6400] * 2
    assert [*over_training(stages, METRIC)] == ["training steps", "training images", "device-hours"]
    assert hours.rows["x"].tolist()[2::3] == [2.0, 4 / 3]
    stages = of_two_seeds(stages)
    (factor,) = time_to_equal(stages, METRIC, cost="cost/train_flops").factors
    at = 100 * 2 ** (1 + 1 / 2) * 12.0  # halfway between 6 and 4, linear in the logarithm
    assert (factor.level, factor.cost) == (5.0, pytest.approx(at * 1e9))
    assert factor.value == pytest.approx(400 * 18.0 / at)
    scores = stages.assign(**{"is@10k": 20 - stages[METRIC]}).drop(
        columns=METRIC
    )  # higher is better
    (mirrored,) = time_to_equal(scores, "is@10k", cost="cost/train_flops").factors
    assert (mirrored.level, mirrored.cost) == (15.0, pytest.approx(at * 1e9))
