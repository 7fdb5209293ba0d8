"""A sweep's frame equals what its records say, and only completed runs have numbers."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from tests.synthetic import (
    FD,
    fd_gap,
    heldout_gap,
    small,
    tiny_spec,
    train_gap,
    write_sweep,
)
from tread_lab.config import SamplesSpec
from tread_lab.config.evaluation import GuidanceSpec, SamplerSpec
from tread_lab.records.lab import Lab
from tread_lab.results import metric_columns, trials_frame

STATES = {(0, 4): "failed", (5, 8): "pending"}


@pytest.fixture(scope="module")
def mixed(tmp_path_factory: pytest.TempPathFactory) -> Lab:
    """Three placements of which one failed and one has not started, two seeds."""
    return write_sweep(tmp_path_factory.mktemp("mixed"), small(states=STATES, seeds=(0, 1)))


def row(frame: pd.DataFrame, route: tuple[int, int], seed: int = 0) -> pd.Series:
    at = (frame["route"] == f"{route[0]}->{route[1]}") & (frame["seed"] == seed)
    return frame[at].iloc[0]


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
