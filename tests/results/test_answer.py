"""The answer says of every cell what its own interval shows, and no more."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from tests.synthetic import small, write_sweep
from tread_lab.results import trials_frame
from tread_lab.results.answer import answer

T975 = stats.t.ppf(0.975, 2)
GAP = "gap/heldout"
INTERVALS = {  # of 0->4, 2->8 and 5->8, the last the best mean -> what the result says
    ((3, 1, 5), (2, 1, 3), (1, 0.5, 1.5)): "No cell is as good as dense at equal steps: each is",
    ((3, -1, 7), (2, -1, 5), (1, 0.5, 1.5)): "more, a gap of +1.00 ± 0.50 (95% over 3 seeds)",
    (
        (3, -1, 7),
        (2, -1, 5),
        (1, -0.5, 2.5),
    ): "No cell is shown to be better than dense at equal steps.\n5→8",
    ((3, -1, 7), (-1, -1.5, -0.5), (-2, -5, 1)): "lowest of 3, cannot be distinguished from dense",
    ((3, 2, 4), (2, 1, 3), (-9, -9.1, -8.9)): "better than dense at equal steps, also at 95% as",
    ((3, 2, 4), (-1, -2, 0), (-2, -3.9, -0.1)): "by its own interval, but not at 95% as the lowest",
}


@pytest.fixture
def placed(tmp_path: Path) -> tuple[Any, pd.DataFrame]:
    """Three placements with three seeds each."""
    lab = write_sweep(tmp_path, small(seeds=(0, 1, 2)))
    return lab, trials_frame(lab, "placement").sort_values(["cell", "seed"])


@pytest.mark.parametrize("intervals", INTERVALS)
def test_the_result_follows_from_every_interval(
    intervals: tuple[Any, ...], placed: tuple[Any, pd.DataFrame]
) -> None:
    lab, frame = placed
    apart = np.array([-1.0, 0.0, 1.0]) * np.sqrt(3) / T975  # deviations of a t-interval of 1
    gaps = [mean + (high - mean) * np.roll(apart, k) for k, (mean, _, high) in enumerate(intervals)]
    trial = frame["role"] == "trial"
    frame.loc[trial, GAP] = np.concatenate(gaps)
    frame["heldout/loss"] = 0.5
    frame.loc[trial, "heldout/loss"] += frame[GAP]
    found = answer(lab, frame)
    assert INTERVALS[intervals] in found.result
    assert found.better == (intervals[-1][2] < 0)
    mean = np.mean([mean for mean, *_ in intervals])
    assert f"Averaged over the 3 cells: {mean:+.2f}".replace("-", "\u2212")[:30] in found.text
    others = frame.assign(**{"heldout/loss": frame["heldout/loss"] * 1.01})  # of other images
    others.loc[trial, "heldout/loss"] += 1e-3
    assert "against dense's" in found.result and "against dense's" not in answer(lab, others).result


def test_one_seed_speaks_of_this_pair_of_runs(tmp_path: Path) -> None:
    lab = write_sweep(tmp_path, small(images=4, levels=2))
    said = answer(lab, trials_frame(lab, "placement"))
    run = "With one seed, run 2→8 s=0.5, lowest of 3, ended 0.0015 below its dense run"
    assert said.result.startswith(run) and "better than" not in said.result
    assert "One seed, indicative only" in said.certainty
    assert "8.5 TFLOP a run, 0.71 of dense's and 0.77 of its device-hours" in said.cost


ONE_LEFT = {(2, 8): "diverged", (5, 8): "diverged"}
LOST = {  # how runs ended -> whether all cells have, and what the result begins or ends with
    ((((0, 4), 1), "diverged"), ((5, 8), "stopped")): (
        "1 of 3 cells has a result; 1 diverged (0→4 s=0.5 seed 1: diverged on purpose);"
        " 1 stopped early (5→8 s=0.5 seed 0, 1: stopped on purpose). Diverged runs are not"
        " repeated. Try a lower train.lr.\n",
        "Started as well, without a result: 2 cells.",
    ),
    (*ONE_LEFT.items(), ((0, 4), "diverged")): ("No result: all 3 cells diverged (0→4 s=0.5", ""),
    ((None, "failed"),): ("There is nothing to compare with. 6 trials completed, but the", ""),
    ((None, "interrupted"),): ("There is no answer yet.\n0 of 3 cells have a result so far.", ""),
    (((0, 4), "interrupted"),): (
        "2 of 3 cells have a result so far.\nProvisional, best so far: 2→8 s=0.5, lowest of 2,"
        " by its own interval alone is better than dense",
        "without a result: 1 cell.",
    ),
}


@pytest.mark.parametrize("states", LOST)
def test_cells_without_a_result_are_counted(states: tuple[Any, ...], tmp_path: Path) -> None:
    lab = write_sweep(tmp_path, small(seeds=(0, 1), states=dict(states)))
    complete = not any(state == "interrupted" for _, state in states)
    said = answer(lab, trials_frame(lab, "placement"), complete=complete)
    first, certainty = LOST[states]
    assert said.result.startswith(first)
    assert certainty in said.certainty
    assert complete or "at 95% as the lowest" not in said.text


def test_control_shares_the_gain_of_the_best(placed: tuple[Any, pd.DataFrame]) -> None:
    lab, frame = placed
    control = frame["cell"] == "5->8 s=0.5"
    frame.loc[control, ["role", "cell"]] = "control", "control batch=8"
    frame.loc[frame["role"] == "trial", GAP] = [-0.03, -0.04, -0.05] * 2
    frame.loc[control, GAP] = [-0.01, -0.02, -0.03]
    found = answer(lab, frame)
    assert found.cell in set(frame.loc[frame["role"] == "trial", "cell"])
    assert "without a route, 50% of it by point estimate" in found.result
    assert "minus the control: \u22120.02000 \u00b1" in found.result and "of 2" in found.result


def test_best_has_least_loss_where_baselines_move(placed: tuple[Any, pd.DataFrame]) -> None:
    """A large gap to a bad baseline does not win."""
    lab, frame = placed
    bad = frame[frame["role"] == "baseline"].assign(cell="dense lr=1")
    bad["run"] += "x"
    frame.loc[frame["cell"] == "5->8 s=0.5", "baseline"] += "x"
    for cell, loss, gap in (("0->4", 0.5, 0.01), ("2->8", 0.6, 0.0), ("5->8", 0.9, -0.3)):
        own = frame["cell"] == f"{cell} s=0.5"
        frame.loc[own, ["heldout/loss", GAP]] = [[loss + 1e-3 * k, gap] for k in (0, 1, -1)]
    both = pd.concat([bad, frame], ignore_index=True)
    both.attrs = frame.attrs
    assert answer(lab, frame).cell == "5->8 s=0.5"
    found = answer(lab, both)
    assert found.cell == "0->4 s=0.5" and "Every other cell is above it" in found.certainty


@pytest.mark.parametrize(
    ("spread", "said"),
    [
        (1e-4, "By rate, 0.25 is best: 0.5 minus 0.25 +0.00100 ± 0.00029 in held-out loss."),
        (1e-2, "By rate, 0.25 and 0.5 are tied: 0.5 minus 0.25 +0.001 ± 0.029 in held-out loss."),
    ],
)
def test_an_axis_is_answered_over_all_settings(spread: float, said: str, tmp_path: Path) -> None:
    lab = write_sweep(tmp_path, small(seeds=(0, 1, 2), rates=(0.25, 0.5)))
    frame = trials_frame(lab, "placement")
    high = frame["rate"] == 0.5
    shift = 0.001 + spread * (frame["seed"] - 1) * np.sqrt(4 / 3)
    shift = shift.where(high, 0.0)
    frame["heldout/loss"] += shift
    frame[GAP] += shift
    result = answer(lab, frame).result
    assert result.startswith(said)
    gaps = frame[frame["role"] == "trial"].groupby("rate")[GAP].mean()
    assert f"other settings: 0.25 {gaps[0.25]:+.4f}"[:-1] in result
