"""What the best cell costs, and what dense reaches for the same, is a sentence, or why not."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.synthetic import small, write_sweep
from tread_lab.analysis.report import price as module
from tread_lab.analysis.report.answer import answer
from tread_lab.frames import cells_frame, result_texts, trials_frame
from tread_lab.records.lab import Lab
from tread_lab.records.plan import StoredPlan

SHIFT = {0: 0.001, 1: -0.001, 2: 0.0}


def told(root: Path, **sweep: Any) -> str:
    """The costs of a sweep, by the plan that is stored with it."""
    lab = write_sweep(root, small(images=4, levels=2, **sweep))
    frame = trials_frame(lab, "placement")
    frame.loc[frame["train.steps"] == 200, "gap/heldout"] += 1.0
    return answer(lab, frame, lab.sweep("placement").plan()).cost


@pytest.mark.parametrize(
    ("sweep", "said"),
    [  # 2->8 takes 8.5 of dense's 12 TFLOP at 400 steps: as much as dense at step 283
        ({}, "cannot be said: its held-out loss was not measured there; match: train_flops in"),
        ({"stages": (283,)}, "a held-out loss of {dense} at step 283; 2→8 s=0.5 reaches {own}."),
        ({"stages": (200,)}, "of about {dense} at about step 283, between its measurements; 2→8"),
        (
            {"stages": (283,), "seeds": (0, 1, 2), "seed_shift": SHIFT},
            "a held-out loss of {mean} (95% over 3 seeds) at step 283; 2→8 s=0.5 reaches 0.4",
        ),
    ],
)
def test_what_dense_reaches_for_the_same_flops_is_told_where_it_is_known(
    sweep: dict[str, Any], said: str, tmp_path: Path
) -> None:
    text, frame = told(tmp_path, **sweep), trials_frame(Lab(tmp_path), "placement")
    losses = frame.groupby("cell")["heldout/loss"]
    own, dense = (f"{losses.first()[name]:.4f}" for name in ("2->8 s=0.5", "dense"))
    mean = result_texts(cells_frame(frame[frame["role"] == "baseline"]), "heldout/loss")[0]
    assert said.format(dense=dense, own=own, mean=mean) in text


def test_a_stage_of_a_decaying_run_is_no_shorter_run_and_runs_of_other_lengths_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(StoredPlan, "follows_length", lambda plan, trial: "schedule sqrt_decay")
    stages, lengths = (
        told(tmp_path / name, **sweep)
        for name, sweep in {"a": {"stages": (283,)}, "b": {"budgets": (200, 400)}}.items()
    )
    assert "under schedule sqrt_decay that step is no shorter run" in stages
    assert "at about step 283, between its measurements" in lengths


def test_a_dense_run_of_other_settings_is_no_point_of_the_cells_own_curve(tmp_path: Path) -> None:
    """The dense run of 200 steps has a learning rate of its own, which is no axis."""
    lab = write_sweep(tmp_path, small(images=4, levels=2, budgets=(200, 400)))
    frame, plan = trials_frame(lab, "placement"), lab.sweep("placement").plan()
    frame.loc[frame["train.steps"] == 200, "gap/heldout"] += 1.0

    def cost(*, axis: str = "train.steps", **recipe: float) -> str:
        trees = [{**t.spec, "train": {**t.spec["train"], **recipe}} for t in plan.trials]
        trials = tuple(
            replace(t, spec=tree, cell={**t.cell, axis: 200}) if t.steps == 200 else t
            for t, tree in zip(plan.trials, trees)
        )
        return answer(lab, frame, replace(plan, trials=trials)).cost

    assert "at about step 283, between its measurements" in cost()
    assert "at about step 283, between its measurements" in cost(warmup=10)  # follows the length
    for other in (cost(lr=0.5), cost(axis="train.warmup", warmup=10)):
        assert "cannot be said: its held-out loss was not measured there" in other


def test_more_than_dense_spends_cannot_be_said(tmp_path: Path) -> None:
    lab = write_sweep(tmp_path, small(images=4, levels=2))
    frame, plan = trials_frame(lab, "placement"), lab.sweep("placement").plan()
    frame.loc[frame["role"] == "trial", "cost/train_flops"] *= 2
    text = answer(lab, frame, plan).cost
    assert "at step 567, cannot be said: it was trained for 400 steps" in text
    frame.attrs["at_step"] = {}
    text = answer(lab, frame, plan).cost
    assert "the same runs answer that at equal training FLOPs" in text and "completed" not in text


def test_flops_and_time_stand_beside_those_of_dense_with_their_mark(tmp_path: Path) -> None:
    lab = write_sweep(tmp_path, small())
    frame, plan = trials_frame(lab, "placement"), lab.sweep("placement").plan()
    fair = "Training 2→8 s=0.5 takes 8.5 TFLOP, 0.71 times dense's 12 TFLOP, and 46 s against"
    assert answer(lab, frame, plan).cost.startswith(f"{fair} dense's 60 s. ")
    assert answer(lab, frame, plan).cost.endswith(
        "The 4 completed runs took 40 TFLOP and 3 min of training, added up over runs that may"
        " overlap."
    )
    frame.loc[frame["role"] == "baseline", "cost/train_seconds"] = 200.0
    assert module.DISTURBED in answer(lab, frame, plan).cost
    alone = frame.drop(columns="cost/train_seconds")
    assert "0.71 times dense's 12 TFLOP. " in answer(lab, alone, plan).cost
    assert answer(lab, frame.drop(columns="cost/train_flops"), plan).cost == ""
