"""The report's headline says of every cell what its own interval shows, and no more."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from tests.synthetic import small, write_sweep
from tread_lab.results import trials_frame
from tread_lab.results.answer import answer

T975 = stats.t.ppf(0.975, 2)
GAP = ("gap/heldout", "gap/heldout:low", "gap/heldout:high")
INTERVALS = {  # of 0->4, 2->8 and 5->8, the last the best mean -> what the headline says
    (
        (3, 1, 5),
        (2, 1, 3),
        (1, 0.5, 1.5),
    ): "Every cell that has a result is worse by its own interval here",
    ((3, -1, 7), (2, -1, 5), (1, 0.5, 1.5)): "more, a gap of +1.00 \u00b1 0.50 (95% over 3 seeds)",
    ((3, -1, 7), (2, -1, 5), (1, -0.5, 2.5)): "has the lowest mean; it cannot be distinguished",
    (
        (3, -1, 7),
        (-1, -1.5, -0.5),
        (-2, -5, 1),
    ): "3 seeds), of 3 cells: 1 better, 2 cannot be distinguished",
}


@pytest.mark.parametrize("intervals", INTERVALS)
def test_the_headline_follows_from_every_interval(intervals: tuple, tmp_path: Path) -> None:
    lab = write_sweep(tmp_path, small(seeds=(0, 1, 2)))
    frame = trials_frame(lab, "placement").sort_values(["cell", "seed"])
    apart = np.array([-1.0, 0.0, 1.0]) * np.sqrt(3) / T975  # deviations of a t-interval of 1
    gaps = [mean + (high - mean) * apart for mean, _, high in intervals]
    trial = frame["role"] == "trial"
    frame.loc[trial, GAP[0]] = np.concatenate(gaps)
    frame["heldout/loss"] = 0.5
    frame.loc[trial, "heldout/loss"] += frame[GAP[0]]
    sentence = answer(lab, frame).sentence
    assert INTERVALS[intervals] in sentence
    others = frame.assign(**{"heldout/loss": frame["heldout/loss"] * 1.01})  # of other images
    others.loc[trial, "heldout/loss"] += 1e-3
    assert "against dense's" in sentence and "against dense's" not in answer(lab, others).sentence
    some_worse = sum(low > 0 for _, low, _ in intervals)
    assert ("Every cell" in sentence) == (some_worse == 3)
    assert ("1 worse, 2 cannot be" in sentence) == (some_worse == 1)
    assert ("each by its own interval" in sentence) == (some_worse < 3)


def test_one_seed_speaks_of_this_pair_of_runs(tmp_path: Path) -> None:
    lab = write_sweep(tmp_path, small(images=4, levels=2))
    said = answer(lab, trials_frame(lab, "placement")).sentence
    assert said.startswith(
        "With one seed, run 2→8 s=0.5, lowest of 3, ended 0.0015 below its dense"
    )
    assert "Indicative only; use three or more seeds." in said and "better than" not in said


def test_a_cell_without_a_result_is_named_and_counts(tmp_path: Path) -> None:
    states = {((0, 4), 1): "diverged", ((5, 8), 0): "stopped", ((5, 8), 1): "stopped"}
    lab = write_sweep(tmp_path, small(seeds=(0, 1), states=states))
    said = answer(lab, trials_frame(lab, "placement"))
    lost = "0→4 s=0.5 (seed 1 diverged) and 5→8 s=0.5 (seed 0, 1 stopped early)."
    assert said.sentence.endswith(f"Without a result, but counted: {lost}")
    assert "lowest of 3" in said.sentence and "best of 3" in said.certainty


def test_control_shares_the_gain_of_the_best(tmp_path: Path) -> None:
    lab = write_sweep(tmp_path, small(seeds=(0, 1, 2)))
    frame = trials_frame(lab, "placement")
    control = frame["cell"] == "5->8 s=0.5"
    frame.loc[control, ["role", "cell"]] = "control", "control batch=8"
    frame.loc[frame["role"] == "trial", GAP[0]] = [-0.03, -0.04, -0.05] * 2
    frame.loc[control, GAP[0]] = [-0.01, -0.02, -0.03]
    found = answer(lab, frame)
    assert found.cell in set(frame.loc[frame["role"] == "trial", "cell"])
    assert (
        "control batch=8, dense" in found.sentence
        and "by point estimate 50% as much" in found.sentence
    )
    assert (
        "minus the control: \u22120.02000 \u00b1" in found.sentence
        and "of 2 cells" in found.sentence
    )


def test_best_has_least_loss_where_baselines_move(tmp_path: Path) -> None:
    """A large gap to a bad baseline does not win."""
    lab = write_sweep(tmp_path, small(seeds=(0, 1, 2)))
    frame = trials_frame(lab, "placement")
    bad = frame[frame["role"] == "baseline"].assign(cell="dense lr=1")
    bad["run"] += "x"
    frame.loc[frame["cell"] == "5->8 s=0.5", "baseline"] += "x"
    for cell, loss, gap in (("0->4", 0.5, 0.01), ("2->8", 0.6, 0.0), ("5->8", 0.9, -0.3)):
        own = frame["cell"] == f"{cell} s=0.5"
        frame.loc[own, ["heldout/loss", GAP[0]]] = [[loss + 1e-3 * k, gap] for k in (0, 1, -1)]
    both = pd.concat([bad, frame], ignore_index=True)
    both.attrs = frame.attrs
    assert answer(lab, frame).cell == "5->8 s=0.5"
    found = answer(lab, both)
    assert found.cell == "0->4 s=0.5" and "every other cell is above it" in found.sentence


@pytest.mark.parametrize(
    ("spread", "best", "said"),
    [
        (
            0.01,
            (-1, -1.1, -1.2),
            "Of 3 cells 5→8 s=0.5 has the lowest mean; it is better than dense at",
        ),
        (5.0, (-1, -1.1, -1.2), "dense at equal steps by its own interval, but not at 95% as the"),
        (0.01, (-0.4, -1.1, -1.5), "lowest mean; it cannot be distinguished from dense"),
    ],
)
def test_the_best_is_better_if_its_interval_and_that_of_all_cells_together_show_it(
    spread: float, best: tuple[float, ...], said: str, tmp_path: Path
) -> None:
    lab = write_sweep(tmp_path, small(seeds=(0, 1, 2)))
    frame = trials_frame(lab, "placement").sort_values(["cell", "seed"])
    gaps = [spread, -spread, 0, -spread, 0, spread, *best]  # of 0->4, 2->8 and 5->8
    frame.loc[frame["role"] == "trial", GAP[0]] = gaps
    sentence = answer(lab, frame).sentence
    assert said in sentence
    assert "Averaged over the 3 cells: \u22120." in sentence  # a third of the mean of `best`
