"""The report's headline says of every cell what its own interval shows, and no more."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.synthetic import small, write_sweep
from tread_lab.analysis.report import answer as module
from tread_lab.analysis.report.answer import answer
from tread_lab.frames import trials_frame

INTERVALS = {  # of 0->4, 2->8 and 5->8, the last the best mean -> what the headline says
    ((3, 1, 5), (2, 1, 3), (1, 0.5, 1.5)): "Every cell that was tried costs quality here, against",
    ((3, -1, 7), (2, -1, 5), (1, 0.5, 1.5)): (
        "it is worse than dense at equal steps: held-out loss +1.00 \u00b1 0.50"
        " (95% over 4 images of 1 seed)"
    ),
    ((3, -1, 7), (2, -1, 5), (1, -0.5, 2.5)): "has the lowest mean; it cannot be distinguished",
    ((3, -1, 7), (-1, -1.5, -0.5), (-2, -5, 1)): "of 3 cells: 1 better, 2 cannot be distinguished",
    ((3, -1, 7), (2, -1, 5), (-1, -2, -0.5)): "best of 3 cells is 5→8 s=0.5; it is better",
}


@pytest.mark.parametrize("intervals", INTERVALS)
def test_the_headline_follows_from_every_interval(intervals: tuple, tmp_path: Path) -> None:
    lab = write_sweep(tmp_path, small(images=4, levels=2))
    frame = trials_frame(lab, "placement")
    columns = ["gap/heldout", "gap/heldout:low", "gap/heldout:high"]
    frame.loc[frame["role"] == "trial", columns] = intervals
    sentence = answer(lab, frame).sentence
    assert INTERVALS[intervals] in sentence
    some_worse = sum(low > 0 for _, low, _ in intervals)
    assert ("Every cell" in sentence) == (some_worse == 3)
    assert ("1 worse, 2 cannot be" in sentence) == (some_worse == 1)


@pytest.mark.parametrize(
    ("tied", "said"),
    [
        ([], "At 95%, every other cell is worse (paired differences)."),
        (["2->8 s=0.5"], "intervals that overlap, it cannot be distinguished from 2→8 s=0.5."),
    ],
)
def test_the_rivals_of_the_best_cell_are_named(
    tied: list[str], said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "tied_with_best", lambda lab, frame, cells: tied)
    lab = write_sweep(tmp_path, small(images=4, levels=2))
    assert said in answer(lab, trials_frame(lab, "placement")).sentence


def test_the_axis_along_which_the_gap_varies_most_is_named(tmp_path: Path) -> None:
    lab = write_sweep(tmp_path, small(images=4, levels=2, rates=(0.25, 0.5)))
    told = "The gap varies most with start (its means span 0.0119), then end (0.00835)"
    frame = trials_frame(lab, "placement")
    assert f"{told}{module.UNCROSSED}." in answer(lab, frame).sentence
    arm = frame[(frame["role"] == "baseline") | (frame["start"] == 2)]
    assert module.UNCROSSED not in answer(lab, arm).sentence


def test_the_lowest_loss_is_named_where_it_is_not_the_best_difference(tmp_path: Path) -> None:
    """Two lengths of training: the shorter one's route gains most, the longer one's is lowest."""
    lab = write_sweep(tmp_path, small(budgets=(400, 800)))
    frame = trials_frame(lab, "placement")
    longer = frame["train.steps"] == 800
    frame.loc[longer, "heldout/loss"] -= 0.1
    frame.loc[longer, "gap/heldout"] += 0.01
    assert "The lowest held-out loss is that of 2→8 s=0.5 steps=800" in answer(lab, frame).sentence
    assert "The lowest" not in answer(lab, frame[~longer]).sentence
