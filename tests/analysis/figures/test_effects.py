"""All cells stand once, in plan order, with gap, interval and cost; effects are paired by seed."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from tests.synthetic import heldout_gap, small, write_sweep
from tread_lab.analysis.figures.effects import (
    caption,
    cell_gaps,
    draw_two_ways,
    two_ways,
)
from tread_lab.analysis.figures.loss_gap import with_the_baselines_loss
from tread_lab.analysis.figures.style import MINUS, figure
from tread_lab.frames import trials_frame
from tread_lab.records.metric_names import FAMILY_FLOPS, TRAIN_FLOPS
from tread_lab.specs import UserError


def frame_of(tmp_path: Path, **changes: object) -> pd.DataFrame:
    sweep = small(rates=(0.25, 0.5), **changes)
    frame = trials_frame(write_sweep(tmp_path, sweep), sweep.name)
    return frame.assign(**{FAMILY_FLOPS: frame[TRAIN_FLOPS]})


def test_every_cell_stands_once_in_plan_order_with_its_paired_gap(tmp_path: Path) -> None:
    gaps = cell_gaps(frame_of(tmp_path), "gap/heldout")
    assert gaps["name"].iloc[0] == "0->4 s=0.25" and len(gaps) == 6
    expected = [heldout_gap(route) for route in ((0, 4), (2, 8), (5, 8)) for _ in range(2)]
    assert gaps["value"].tolist() == pytest.approx(expected)
    assert (gaps["low"] < gaps["value"]).all() and (gaps["value"] < gaps["high"]).all()
    shares = [(12 - 0.5 * n) / 12 for n in (5, 5, 7, 7, 4, 4)]
    assert gaps["flops"].tolist() == pytest.approx(shares)


def test_an_unknown_metric_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="no metric 'gap/heldot'"):
        cell_gaps(frame_of(tmp_path), "gap/heldot")


def test_training_losses_are_compared_only_if_they_are_the_same_loss(tmp_path: Path) -> None:
    frame = frame_of(tmp_path)
    other = frame["cell"].str.contains("s=0.25")
    frame["loss"] = np.where(other, "equation 0.1", None)
    left = with_the_baselines_loss(frame)
    assert (
        len(left) == len(frame) - other.sum() and not left["cell"].isin(frame[other]["cell"]).any()
    )


METRIC = "fd[fashion16-v1]@1k"
# process -> dense and routed of seeds 0, 1, 2
VALUES = {
    "edm": ([10.0, 12.0, 11.0], [11.0, 14.0, 14.0]),
    "ddpm": ([20.0, 21.0, 25.0], [22.0, 22.0, 28.0]),
}


def crossed(seeds: int = 3) -> pd.DataFrame:
    rows = []
    for process, (dense, routed) in VALUES.items():
        for seed in range(seeds):
            base = f"{process}-{seed}"
            shared = {"process": process, "seed": seed, "state": "completed"}
            rows.append(
                {**shared, "run": base, "role": "baseline", "route": "dense", METRIC: dense[seed]}
            )
            for selection, more in (("", 0.0), (" by rows", 0.5 * seed)):
                cell = f"2->8{selection} s=0.5 process={process}"
                own = {"run": f"{cell} {seed}", "cell": cell, "role": "trial", "baseline": base}
                rows.append({**shared, **own, "route": "2->8", METRIC: routed[seed] + more})
    frame = pd.DataFrame(rows)
    frame.attrs["axes"] = ("process", "route")
    return frame


def test_effects_of_every_cell_are_mean_paired_differences_with_their_t_intervals() -> None:
    ways = two_ways(crossed(), METRIC)
    assert ways is not None and ways.axis == "process"
    assert [effect.name.replace(MINUS, "-") for effect in ways.effects] == [
        "ddpm - edm, dense",
        "2→8 s=0.5 - dense, edm",
        "2→8 s=0.5 - dense, ddpm",
        "2→8 by rows s=0.5 - dense, edm",
        "2→8 by rows s=0.5 - dense, ddpm",
        "2→8 s=0.5: ddpm - edm",
        "2→8 by rows s=0.5: ddpm - edm",
    ]
    routes = [[1, 2, 3], [2, 1, 3], [1, 2.5, 4], [2, 1.5, 4]]
    differences = [[10, 9, 14], *routes, [1, -1, 0], [1, -1, 0]]
    for effect, paired in zip(ways.effects, differences):
        half = 4.302653 * np.std(paired, ddof=1) / math.sqrt(3)  # t of 2 degrees of freedom
        assert effect.value == pytest.approx(np.mean(paired))
        assert (effect.low, effect.high) == pytest.approx(
            (np.mean(paired) - half, np.mean(paired) + half), rel=1e-6
        )
        assert effect.seeds == 3


def test_the_caption_names_the_largest_effects() -> None:
    ways = two_ways(crossed(), METRIC)
    assert ways is not None
    text = caption(ways).replace(MINUS, "-")
    assert "Largest effect of process: +11.0 \u00b1 6.6 (ddpm - edm, dense)." in text
    assert "over 3 seeds" in text
    fig, axes = figure()
    draw_two_ways(ways, axes[0])
    fig.canvas.draw()


def test_a_seed_without_a_number_is_left_out_of_its_pairs() -> None:
    frame = crossed()
    frame.loc[frame["run"] == "2->8 s=0.5 process=ddpm 2", METRIC] = np.nan
    ways = two_ways(frame, METRIC)
    assert ways is not None
    assert [effect.seeds for effect in ways.effects] == [3, 3, 2, 3, 3, 2, 3]


def test_one_seed_or_a_shared_baseline_shows_no_effects() -> None:
    assert two_ways(crossed(seeds=1), METRIC) is None
    shared = crossed()
    shared.loc[shared["role"] == "trial", "baseline"] = "edm-0"
    assert two_ways(shared, METRIC) is None
    several = crossed()  # of a field that is computed from the route
    several.loc[several["cell"].str.contains("by rows", na=False), "baseline"] += " of rows"
    assert two_ways(several, METRIC) is None
    none = crossed()
    none["baseline"] = None
    assert two_ways(none, METRIC) is None
