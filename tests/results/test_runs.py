"""A sweep's frame equals what its records say, and only completed runs have numbers."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from tests.synthetic import (
    FD,
    Route,
    fd_gap,
    heldout_gap,
    small,
    tiny_spec,
    train_gap,
    write_sweep,
)
from tread_lab.config import SamplesSpec, encode, signature
from tread_lab.config.evaluation import GuidanceSpec, SamplerSpec, decode_evaluations
from tread_lab.records import metric_names
from tread_lab.records.durable import read_json, write_json
from tread_lab.records.lab import Lab
from tread_lab.records.run_state import RunState
from tread_lab.results import metric_columns, ranking_key, trials_frame

STATES = {(0, 4): "failed", (5, 8): "pending"}


@pytest.fixture(scope="module")
def mixed(tmp_path_factory: pytest.TempPathFactory) -> Lab:
    """Three placements of which one failed and one has not started, two seeds."""
    return write_sweep(tmp_path_factory.mktemp("mixed"), small(states=STATES, seeds=(0, 1)))


def row(frame: pd.DataFrame, route: tuple[int, int], seed: int = 0) -> pd.Series:
    at = (frame["route"] == f"{route[0]}->{route[1]}") & (frame["seed"] == seed)
    return frame[at].iloc[0]


def test_rows_are_the_plans_trials_in_order(mixed: Lab) -> None:
    frame = trials_frame(mixed, "placement")
    plan = mixed.sweep("placement").plan()
    assert list(frame["run"]) == [trial.run for trial in plan.trials]
    assert list(frame["role"][:3]) == ["baseline", "baseline", "trial"]
    first = ["run", "role", "seed", "state", "reason", "mixed", "disturbed", "baseline", "cell"]
    assert list(frame.columns[:12]) == [*first, "start", "end", "rate"]
    assert frame.attrs["axes"] == ["start", "end", "rate"]
    kinds = [str(frame[axis].dtype) for axis in frame.attrs["axes"]]
    assert kinds == ["Int64", "Int64", "float64"]  # whole beside a baseline without


def test_dense_trial_keeps_its_axes_place(mixed: Lab) -> None:
    plan = read_json(mixed.sweep("placement").plan_path)
    dense = {**plan["trials"][0], "role": "trial", "cell": {"start": 2, "end": 8, "rate": 0.0}}
    routed = plan["trials"][-1]["spec"]
    after = {**routed, "routes": [], "init_from": {"run": routed, "weights": "ema"}}
    child = {**dense, "run": "c", "spec": after, "cell": {"start": 2, "end": 8, "rate": 0.5}}
    mixed.sweep("zero").plan_path.parent.mkdir(parents=True)
    write_json(mixed.sweep("zero").plan_path, {**plan, "name": "zero", "trials": [dense, child]})
    frame = trials_frame(mixed, "zero")
    places = frame[["start", "end", "length", "rate", "route"]].values.tolist()
    assert places == [[2, 8, 0, 0.0, "dense"], [2, 8, 0, 0.5, "dense"]]


def test_only_completed_runs_have_numbers(mixed: Lab) -> None:
    frame = trials_frame(mixed, "placement")
    for route, state in STATES.items():
        found = row(frame, route)
        assert found["state"] == state
        assert found[metric_columns(frame)].isna().all()
    assert row(frame, (0, 4))["reason"] == "failed on purpose"
    assert frame.loc[frame["state"] == "completed", "heldout/loss"].notna().all()


def test_lost_baseline_leaves_no_gap(tmp_path: Path) -> None:
    lab = write_sweep(tmp_path, small(states={None: "failed"}))
    run = lab.run_of(tiny_spec((2, 8)))
    run.reopen()
    run.finish("completed", step=400, reason="not measured")
    found = row(trials_frame(lab, "placement"), (2, 8))
    assert found["reason"] == "its baseline failed: there is nothing to compare with"
    assert np.isnan(found.get("gap/heldout", np.nan))
    assert found["gap/route"] == pytest.approx(train_gap((2, 8)) - heldout_gap((2, 8)))


def test_foreign_evaluation_keeps_planned_names(tmp_path: Path) -> None:
    lab = write_sweep(tmp_path, small())
    sampler = SamplerSpec(guidance=GuidanceSpec(weight=3.5))
    other = SamplesSpec(metrics=("fd",), count=1000, sampler=sampler)
    more = SamplesSpec(metrics=("fd", "kid"), count=1000)  # of the planned images
    for spec in (other, more):
        lab.run_of(tiny_spec((2, 8))).evaluation(spec).write(spec, {FD: 9.0})
    strong = replace(other, sampler=SamplerSpec(guidance=GuidanceSpec(weight=300.0)))
    evaluation = lab.run_of(tiny_spec((2, 8))).evaluation(strong)
    evaluation.write(strong, {}, problem="images are no finite numbers")
    frame = trials_frame(lab, "placement")
    found = row(frame, (2, 8))
    assert found["reason"] == ""
    assert found[FD] == pytest.approx(1.8 + fd_gap((2, 8)))
    assert found[f"{FD} w=3.5"] == 9.0
    assert frame.attrs["planned"] == ["heldout/loss", FD, "heldout/loss_routed"]
    assert frame.attrs["foreign"] == [f"{FD} w=3.5"]


@pytest.mark.parametrize(
    ("lacking", "problem", "key"),
    [([], "", "gap/heldout"), ([(0, 4)], "", FD), ([(0, 4)], "no finite number", "gap/heldout")],
)
def test_foreign_losses_compare_complete_sweeps(
    lacking: list[Route], problem: str, key: str, tmp_path: Path
) -> None:
    lab = write_sweep(tmp_path, small())
    path = lab.sweep("placement").plan_path
    plan = read_json(path)
    write_json(path, {**plan, "evaluate": plan["evaluate"][1:]})
    for route in lacking:
        spec = small().evaluations[0]
        evaluation = lab.run_of(tiny_spec(route)).evaluation(spec)
        arrays = dict(np.load(evaluation.path / "losses.npz"))
        shutil.rmtree(evaluation.path)
        if problem:
            evaluation.path.mkdir()
            np.savez(
                evaluation.path / "losses.npz", **{**arrays, "dense": arrays["dense"] * np.nan}
            )
            evaluation.write(spec, {}, problem=problem)
    frame = trials_frame(lab, "placement")
    assert ranking_key(frame) == key
    assert ("gap/heldout" in frame) == (not lacking or bool(problem))
    assert row(frame, (0, 4))["reason"] == problem and row(frame, (2, 8))["reason"] == ""


def test_row_has_steps_and_kept_variance(mixed: Lab) -> None:
    frame = trials_frame(mixed, "placement")
    assert [row(frame, route)["steps_done"] for route in ((2, 8), (0, 4))] == [400, 200]
    assert str(frame["steps_done"].dtype) == str(frame["start"].dtype) == "Int64"
    found = row(frame, (2, 8))
    assert 0 < found["gap/heldout:kept"] < 0.01 and found["gap/heldout:n"] == 32
    assert found["gap/train"] == pytest.approx(train_gap((2, 8)))
    baseline = frame.iloc[0]
    assert baseline["cell"] == "dense" and pd.isna(baseline["baseline"])
    assert frame["baseline"].iloc[2] == frame["run"].iloc[0]
    assert frame["baseline"].iloc[3] == frame["run"].iloc[1]
    assert trials_frame(mixed, mixed.sweep("placement")).equals(frame)


def test_problems_of_losses_come_before_ends_of_runs(tmp_path: Path) -> None:
    lab = write_sweep(tmp_path, small(states={None: "failed", (5, 8): "failed"}))
    path = next(lab.run_of(tiny_spec((2, 8))).path.glob("evaluations/*/losses.npz"))
    path.write_bytes(b"")
    frame = trials_frame(lab, "placement")
    alone = "its baseline failed: there is nothing to compare with"
    assert [*frame["reason"].drop(2)] == ["failed on purpose", alone, "failed on purpose"]
    assert frame["reason"][2].endswith("evaluate again")
    assert np.isnan(row(frame, (2, 8))["gap/route"])


@pytest.mark.parametrize("state", ["diverged", "interrupted"])
def test_reopened_run_has_no_numbers(tmp_path: Path, state: str) -> None:
    lab = write_sweep(tmp_path, small())
    run = lab.run_of(tiny_spec((2, 8)))
    run.reopen()
    run.log_path.touch()
    if state == "diverged":
        run.finish(state, step=7)
    found = row(frame := trials_frame(lab, "placement"), (2, 8))
    assert found["state"] == state
    assert found[metric_columns(frame)].isna().all()
    assert found["steps_done"] is pd.NA if state == "interrupted" else found["steps_done"] == 7


SG = {"weight": 1.5, "strong": {"rate": 0.5}, "weak": {"rate": 0.9}}


def test_methods_and_weights_name_themselves(tmp_path: Path) -> None:
    """A finished run that was measured once per guidance, with what an image cost."""
    decayed = {**SG, "weak": {"rate": "0.9->0", "label": "none"}}
    guidances: dict[str, Any] = {"": 1, " w=2": 2, " w=1.5 SG(0.5/0.9)": SG}
    guidances |= {" w=1.5 CFG+SG(0.5/0.9->0)": decayed}
    evaluations = decode_evaluations([
        {"samples": {"metrics": ["fd"], "count": 1000, "sampler": {"guidance": own}}}
        for own in guidances.values()
    ])  # fmt: skip
    lab, spec, flops = Lab(tmp_path), tiny_spec(None), metric_names.SAMPLE_FLOPS
    trial = {"run": signature(spec), "role": "baseline", "cell": {}, "seed": 0, "baseline": None}
    plan = {"format": 2, "name": "g", "evaluate": encode(evaluations)}
    write_json(lab.sweep("g").plan_path, {**plan, "trials": [{**trial, "spec": encode(spec)}]})
    for number, evaluation in enumerate(evaluations):
        folder = lab.run_of(spec).evaluation(evaluation)
        folder.write(evaluation, {FD: float(number)}, **{flops: 1e9 * number})
    lab.run_of(spec).finish(RunState.COMPLETED, step=400, metrics={})
    (row,) = trials_frame(lab, "g").to_dict("records")
    assert {name: value for name, value in row.items() if name.startswith((FD, flops))} == {
        f"{metric}{suffix}": price * number
        for metric, price in ((FD, 1.0), (flops, 1e9))
        for number, suffix in enumerate(guidances)
    }
