"""`load_sweep` plans as the command does; runs that the lab has are neither open nor paid for."""

from __future__ import annotations

from pathlib import Path

from tests.pretender import ended_run
from tread_lab.records.lab import Lab
from tread_lab.records.sweep_folder import Judgement
from tread_lab.sweep.planned_sweep import load_sweep


def test_rows_have_roles_and_costs(tmp_path: Path) -> None:
    overrides = ("train.steps=100", "match=null", "axes.rate=[0.25,0.75]")
    planned = load_sweep("route_placement.yaml", "controls=[]", *overrides, path=tmp_path)
    rows = planned.trials
    assert rows.columns[:6].tolist() == ["run", "label", "role", "seed", "state", "baseline"]
    assert {*rows.columns[6:]} == {"start", "end", "rate", "steps", "speedup", "train_flops"}
    assert rows["run"].tolist() == [trial.run for trial in planned.plan.trials]
    assert len(rows) == 1 + 2 * 16 and set(rows["state"]) == {"pending"}
    assert rows["rate"].dropna().unique().tolist() == [0.25, 0.75]
    assert rows["start"].dtype == "Int64"
    dense, routed = rows.iloc[0], rows.iloc[1]
    assert (dense["role"], dense["label"], dense["speedup"]) == ("baseline", "dense seed 0", 1.0)
    assert routed["role"] == "trial" and routed["baseline"] == dense["run"]
    assert routed["train_flops"] < dense["train_flops"] and routed["speedup"] > 1
    assert not any(tmp_path.iterdir())


def test_runs_of_the_lab_are_done(tmp_path: Path) -> None:
    sweep = load_sweep("route_placement.yaml", "controls=[]", "evaluate=[]", path=tmp_path)
    for trial in sweep.plan.trials[:10]:
        ended_run(Lab(tmp_path), trial.spec, "diverged", step=1)
    later = load_sweep("route_placement.yaml", "controls=[]", "evaluate=[]", path=tmp_path)
    assert later.trials["state"].tolist() == ["diverged"] * 10 + ["pending"] * 7
    last = sweep.plan.trials[-1].run
    with Lab(tmp_path).run(last).log() as log:
        log(1, **{"train/loss": 1.0})
    Lab(tmp_path).sweep("route_placement").add_judgement(Judgement(last, 1, 0.5))
    later = load_sweep("route_placement.yaml", "controls=[]", "evaluate=[]", path=tmp_path)
    assert later.trials["state"].iloc[-1] == "stopped", "early, as everywhere"
