"""Cells are ranked by the gap; with baselines of several kinds by held-out loss."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from tests.four_sweeps import made_frame
from tests.synthetic import small, write_sweep
from tread_lab.records.lab import Lab
from tread_lab.results import (
    better_than_dense,
    ranked_cells,
    ranking_key,
    started_cells,
    tied_with_best,
    trials_frame,
)


@pytest.mark.parametrize(
    ("columns", "key"),
    [
        ({"gap/heldout": [None, 1.0], "heldout/loss": [1.0, 2.0]}, "gap/heldout"),
        ({"gap/heldout": [None, None], "heldout/loss": [1.0, 2.0]}, "heldout/loss"),
        ({"fd@1k:low": [1.0, 2.0], "is@1k": [None, None], "fd@1k": [1.0, 2.0]}, "fd@1k"),
        ({"cost/train_flops": [1.0, 2.0]}, None),
        ({}, None),
    ],
)
def test_the_key_is_what_was_measured(columns: dict[str, list[Any]], key: str | None) -> None:
    assert ranking_key(made_frame("dense", "a", **columns)) == key


@pytest.mark.parametrize(
    ("axis", "key"),
    [
        ("train.lr", "heldout/loss"),
        ("data.flips", "heldout/loss"),
        ("data.scale", "gap/heldout"),
        ("data", "gap/heldout"),
        ("process", "gap/heldout"),
        ("process.p_mean", "gap/heldout"),
    ],
)
def test_losses_of_other_data_or_processes_rank_no_cells(axis: str, key: str) -> None:
    columns = {"heldout/loss": [1.0, 2.0, 3.0], "gap/heldout": [None, None, 1.0]}
    frame = made_frame("dense", "other", "a", **columns)
    frame["role"] = ["baseline", "baseline", "trial"]
    frame.attrs["axes"] = ["route", axis]
    assert ranking_key(frame.assign(**{axis: 0.5})) == "heldout/loss"  # an axis of one value
    frame[axis] = [0.5, 1.0, 1.0]
    assert ranking_key(frame) == key
    frame = frame.assign(**{"baseline": frame["run"], "fd@1k": 1.0})  # no gap but to itself
    assert ranking_key(frame) == ("fd@1k" if key == "gap/heldout" else key)


def test_the_best_cell_stands_first_and_those_without_a_number_last_in_plan_order() -> None:
    names = ("dense", "unmeasured", "worse", "better", "broken")
    numbers = {"gap/heldout": [None, None, 0.5, -0.5, -9.0], "is@1k": [2.0, None, 3.0, 1.0, 9.0]}
    states = ["completed"] * 4 + ["failed"]
    frame = made_frame(
        *names, state=states, **numbers, **{"gap/route": [None, 0.5, 0.5, 0.5, None]}
    )
    best = ranked_cells(frame, "gap/heldout")
    assert np.isnan(best["gap/route"].iloc[1])  # which compares a run with itself
    assert list(best["cell"]) == ["better", "dense", "worse", "unmeasured", "broken"]
    assert best["gap/heldout"].iloc[1] == 0.0
    highest = ranked_cells(frame, "is@1k")
    assert list(highest["cell"]) == ["worse", "dense", "better", "unmeasured", "broken"]
    assert highest["is@1k"].iloc[1] == 2.0
    assert list(ranked_cells(frame, None)["cell"]) == [*names]


def test_a_trial_that_is_its_baselines_own_run_is_left_out() -> None:
    frame = made_frame("dense", "rate 0", "a", run=["r", "r", "s"], baseline=[None, "r", "r"],
                  **{"gap/heldout": [None, 0.0, 1.0]})  # fmt: skip
    assert list(ranked_cells(frame, "gap/heldout")["cell"]) == ["dense", "a"]


def test_cells_with_baselines_of_their_own_tie_by_their_gaps(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The longer runs lose .3 less, dense and routed: their gaps are as before."""
    shape = small(routes=((2, 8), (0, 4)), budgets=(100, 200))
    lab = write_sweep(tmp_path, shape)
    for trial in lab.sweep("placement").plan().trials:
        for path in lab.run(trial.run).path.glob("evaluations/*/losses.npz"):
            losses = dict(np.load(path))
            if trial.steps == 200:
                np.savez(path, **{**losses, "dense": losses["dense"] - 0.3})
    frame = trials_frame(lab, "placement")
    assert list(frame["cell"][:2]) == ["dense steps=100", "dense steps=200"]
    cells = [name for name in ranked_cells(frame, "gap/heldout")["cell"] if "->" in name]
    assert [cell.split()[0] for cell in cells] == ["2->8", "2->8", "0->4", "0->4"]
    assert tied_with_best(lab, frame, cells) == cells[1:2]
    monkeypatch.setattr("tread_lab.results.ranking.NEAREST", 0)  # own intervals tell them apart
    assert tied_with_best(lab, frame, cells) == cells[1:2]


@pytest.mark.parametrize(("state", "better"), [("pending", True), ("diverged", False)])
def test_every_started_cell_counts(state: str, better: bool) -> None:
    """Gaps of -1 are better than dense alone, and not as the best of 201 cells."""
    gaps = ([np.nan, -1.0], [np.nan, -1.1], [np.nan, -0.9])
    seeds = [made_frame("dense", "a", **{"gap/heldout": own}) for own in gaps]
    lost = made_frame("dense", *(f"c{k}" for k in range(200))).iloc[1:].assign(state=state)
    frame = pd.concat([*(one.assign(seed=n) for n, one in enumerate(seeds)), lost])
    assert started_cells(frame) == (1 if better else 201)
    cells = ranked_cells(frame, "gap/heldout")
    assert better_than_dense(frame, cells[cells["cell"] == "a"]) is better


def test_a_rival_that_two_cells_would_tell_apart_ties_beside_many(tmp_path: Path) -> None:
    """Half an interval of the difference is less than 0.001, and of ten cells together more."""
    gaps = {(2, 8): 0.0, (0, 4): 0.001, **{(0, end): 0.1 for end in range(2, 11) if end != 4}}
    lab = write_sweep(tmp_path, small(routes=tuple(gaps), heldout=gaps.__getitem__))
    frame = trials_frame(lab, "placement")
    cells = [f"{start}->{end} s=0.5" for start, end in gaps]
    two = frame[(frame["role"] == "baseline") | frame["cell"].isin(cells[:2])]
    assert tied_with_best(lab, two, cells[:2]) == []
    assert tied_with_best(lab, frame, cells) == cells[1:2]


def test_all_rivals_are_compared_with_the_best_together() -> None:
    """Of 40 equal cells of three seeds each would be worse than the best one in 1 of 20 pairs."""
    rng, names = np.random.default_rng(0), [f"c{k}" for k in range(41)]
    gaps = rng.normal(size=(3, 41)) + np.where(np.arange(41) < 40, 0.0, 30.0)
    seeds = [made_frame("dense", *names, **{"gap/heldout": [None, *own]}) for own in gaps]
    frame = pd.concat([one.assign(seed=seed) for seed, one in enumerate(seeds)])
    cells = [names[k] for k in np.argsort(gaps.mean(axis=0))]
    assert tied_with_best(Lab(Path()), frame, cells) == cells[1:40]
