"""`load_sweep` plans as the command does; runs that the lab has are neither open nor paid for."""

from __future__ import annotations

from pathlib import Path

import pytest

from tread_lab.records.lab import Lab
from tread_lab.records.status import RunState
from tread_lab.specs.errors import UserError
from tread_lab.sweep.plan.planned_sweep import load_sweep


def test_a_plan_is_neither_stored_nor_run(tmp_path: Path) -> None:
    planned = load_sweep("route_placement.yaml", "train.steps=10", path=tmp_path)
    assert len(planned.trials) == 17 and set(planned.trials["state"]) == {"pending"}
    assert planned.train_flops == planned.trials["train_flops"].sum()
    assert repr(planned).startswith("route_placement: 17 runs of tiny, ")
    assert not any(tmp_path.iterdir())


def test_runs_of_the_lab_are_done_already(tmp_path: Path) -> None:
    def planned() -> tuple[list[str], float]:
        sweep = load_sweep("route_placement.yaml", "evaluate=[]", path=tmp_path)
        return sweep.trials["state"].tolist(), sweep.hours("H100")

    states, hours = planned()
    sweep = load_sweep("route_placement.yaml", "evaluate=[]", path=tmp_path)
    for trial in sweep.plan.trials[:10]:
        folder = Lab(tmp_path).run(trial.run)
        folder.create(trial.spec)
        folder.finish(RunState.DIVERGED, step=1)
    later_states, later_hours = planned()
    assert states == ["pending"] * 17 and later_states == ["diverged"] * 10 + ["pending"] * 7
    assert 0 < later_hours < hours


def test_an_axis_is_a_column_and_an_override_an_axis(tmp_path: Path) -> None:
    trials = load_sweep("route_placement.yaml", "axes.rate=[0.25,0.75]", path=tmp_path).trials
    assert trials["rate"].dropna().unique().tolist() == [0.25, 0.75]
    assert trials["start"].dtype == "Int64"
    with pytest.raises(UserError, match="unknown key 'rat'"):
        load_sweep("route_placement.yaml", "axes.rate=[0.25]", "rat=1")
