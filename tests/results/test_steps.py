"""Evaluations during training: kept weights, one name for all steps, the end where it was."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from tests.sweep.plans import carry_out
from tests.synthetic import FD, fd_gap, heldout_gap, small, write_sweep
from tests.train.runs import CPU, evaluate, small_run
from tread_lab.config import HeldoutSpec, RunSpec, decode, encode
from tread_lab.config.sweep import Experiment, SweepSpec
from tread_lab.dashboards.contents import contents
from tread_lab.records.lab import Lab
from tread_lab.results import SweepReader, trials_frame
from tread_lab.sweep.plan import Plan, make_plan, store_plan
from tread_lab.sweep.task import Task

HELDOUT = {"images": 8, "levels": 2}
TRAIN = {"steps": 6, "batch": 8, "lr": 1e-3, "ema": 0.5}  # constant rate, decay a step
EXECUTION = {"log_every": 2, "checkpoint_every": 100, "keep_checkpoints": 1}


def run(**train: Any) -> RunSpec:
    return small_run(train={**TRAIN, **train}, execution=EXECUTION)


def planned(lab: Lab, name: str, at: list[Any], **more: Any) -> Plan:
    tree = {
        "experiment": "small",
        "axes": {"route": ["1->1"]},
        "evaluate": [{"heldout_loss": {**HELDOUT, "at": at}}],
        **more,
    }
    plan = make_plan(name, decode(SweepSpec, tree), Experiment(name="small", run=encode(run())))
    store_plan(lab.sweep(name), plan)
    return plan


@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory) -> tuple[Lab, Plan]:
    lab = Lab.at(tmp_path_factory.mktemp("lab"))
    plan = planned(lab, "steps", [2, "50%", "end"])
    carry_out(lab, *plan.open_tasks(lab))
    return lab, plan


@pytest.fixture(scope="module")
def frame(done: tuple[Lab, Plan]) -> pd.DataFrame:
    return SweepReader.of(done[0], "steps").steps()


@pytest.mark.parametrize("phase", [{"routes_until": 4}, {"routes_from": 3}])
def test_cost_of_unequal_steps_is_unknown(phase: dict[str, int], lab: Lab) -> None:
    """By its share of the steps, a stage before dense steps would count too many FLOPs."""
    carry_out(lab, *planned(lab, "phase", [2, "end"], fixed=phase).open_tasks(lab))
    costs = SweepReader.of(lab, "phase").steps().set_index(["role", "step"])["cost/train_flops"]
    whole = costs["baseline", 6]
    assert costs["baseline", 2] == pytest.approx(whole / 3)
    assert np.isnan(costs["trial", 2]) and costs["trial", 6] < whole


def test_stage_equals_the_shorter_run(
    done: tuple[Lab, Plan], frame: pd.DataFrame, tmp_path: Path
) -> None:
    """With a constant rate and a fixed decay the first steps of both runs are the same."""
    short = Lab.at(tmp_path)
    spec = decode(RunSpec, {**encode(run(steps=2)), "routes": []})
    task = Task(spec, (HeldoutSpec(**HELDOUT),))
    carry_out(short, task)
    metrics = evaluate(short.run(task.run), HeldoutSpec(**HELDOUT), CPU)
    assert frame["heldout/loss"].iloc[0] == metrics["heldout/loss"]


def test_gaps_are_to_the_baseline_at_the_same_step(frame: pd.DataFrame) -> None:
    loss, gap = frame["heldout/loss"].to_numpy(), frame["gap/heldout"].to_numpy()
    np.testing.assert_allclose(gap[3:], loss[3:] - loss[:3], rtol=0, atol=1e-12)
    assert (frame["gap/heldout:n"].iloc[3:] == 8).all()
    assert len(set(gap[3:])) == 3


def test_matched_runs_also_compare_equal_steps(tmp_path: Path) -> None:
    lab, more = Lab.at(tmp_path), {"match": "train_flops", "axes": {"route": ["0->1", "1->1"]}}
    carry_out(lab, *planned(lab, "matched", ["baseline", "end"], **more).open_tasks(lab))
    at_end, at_six = trials_frame(lab, "matched"), SweepReader.of(lab, "matched").equal_steps()
    assert at_six is not None
    plan, losses = lab.sweep("matched").plan(), at_six["heldout/loss"]
    assert [trial.steps for trial in plan.trials] == [6, 8, 7]
    assert at_end.attrs["comparison"] == "at equal training FLOPs"
    assert at_six.attrs["comparison"] == "at equal steps"
    assert list(at_six["cell"]) == list(at_end["cell"]) == ["dense", "0->1 s=0.5", "1->1 s=0.5"]
    assert at_six["gap/heldout"].iloc[1] == pytest.approx(losses.iloc[1] - losses.iloc[0])
    assert at_six["heldout/loss"].iloc[0] == at_end["heldout/loss"].iloc[0]
    assert at_six["heldout/loss"].iloc[1] != at_end["heldout/loss"].iloc[1]
    assert "step" not in SweepReader.of(lab, "matched").training(), "two questions are no curve"
    shown = contents(lab, "matched")
    assert "dense run at equal training FLOPs" in shown["answer"].result
    questions = {chart.question for chart in shown["charts"]}
    assert questions == {"at equal training FLOPs", "at equal steps"}


@pytest.mark.parametrize(
    "fixed", [{"train": {"schedule": "sqrt_decay"}}, {"train": {"warmup": 0.4}}]
)
def test_decaying_stage_is_no_shorter_run(fixed: dict[str, Any], tmp_path: Path) -> None:
    lab, more = Lab.at(tmp_path), {"match": "train_flops", "axes": {"route": ["0->1"]}}
    carry_out(lab, *planned(lab, "decaying", [6, "end"], fixed=fixed, **more).open_tasks(lab))
    assert SweepReader.of(lab, "decaying").equal_steps() is None
    frame = SweepReader.of(lab, "decaying").steps()
    assert frame.attrs["schedules"] == ["sqrt_decay"] * ("schedule" in fixed["train"])
    rows = frame.set_index(["role", "step"])
    assert list(rows.index) == [("baseline", 6), ("trial", 6), ("trial", 8)]
    assert rows["gap/heldout"].notna().tolist() == [False, False, True]
    assert rows["heldout/loss"].notna().all()


def test_failed_trial_has_one_row(tmp_path: Path) -> None:
    lab = write_sweep(tmp_path, small(stages=(100, 200), states={(2, 8): "failed"}))
    frame = SweepReader.of(lab, "placement").steps()
    assert frame["step"].fillna(-1).tolist() == [100, 200, 400] * 2 + [-1] + [100, 200, 400]
    assert frame["cell"].iloc[6] == "2->8 s=0.5" and frame["state"].iloc[6] == "failed"
    assert frame["cell"].iloc[5] == "0->4 s=0.5 step=400" and str(frame["step"].dtype) == "Int64"
    assert frame.attrs["axes"] == ["start", "end", "rate", "step"]
    assert frame.attrs["schedules"] == []
    first, *_, last = (frame.iloc[k] for k in (3, 4, 5))
    assert (first["cost/train_seconds"], last["cost/train_seconds"]) == (12.5, 50.0)
    assert first["cost/device_hours"] == 12.5 / 3600 and last["cost/device_hours"] == 50 / 3600
    assert (first["cost/train_flops"], last["cost/train_flops"]) == (9.5e12 / 4, 9.5e12)
    assert (first["cost/train_images"], last["cost/train_images"]) == (1600.0, 6400.0)
    assert first["gap/heldout"] == pytest.approx(heldout_gap((0, 4)))
    assert first[FD] == pytest.approx(1.8 + 24.0 + fd_gap((0, 4)))
    assert np.isnan(first["throughput/images_per_s"]) and last["throughput/images_per_s"] == 500.0
