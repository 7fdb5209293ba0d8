"""A sweep over guidance on runs that are there already measures, and trains nothing."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.sweep.plans import carry_out
from tests.train.runs import small_run
from tread_lab.config import decode, encode
from tread_lab.config.sweep import Experiment, SweepSpec
from tread_lab.records.lab import Lab
from tread_lab.results import trials_frame
from tread_lab.sweep.plan import Plan, make_plan, store_plan
from tread_lab.sweep.run_task import Report

BASE = Experiment(name="small", run=encode(small_run()), sampler={"steps": 2, "sigma_max": 10})
DRAWN = {"samples": {"count": 4, "sampler": {"guidance": {"routes": ["1->1"]}}}}


def planned(name: str, **changes: Any) -> Plan:
    tree = {"experiment": "small", "axes": {"route": ["1->1"]}, "evaluate": [DRAWN], **changes}
    return make_plan(name, decode(SweepSpec, tree), BASE)


def carried_out(lab: Lab, plan: Plan) -> list[Report]:
    store_plan(lab.sweep(plan.name), plan)
    return carry_out(lab, *plan.open_tasks(lab))


def test_guidance_sweep_trains_nothing(tmp_path: Path) -> None:
    lab = Lab(tmp_path)
    trained = carried_out(lab, planned("train"))
    assert {report.phase for report in trained} == {"train", "evaluate", "completed"}
    logs = {path: path.read_bytes() for path in tmp_path.glob("runs/*/log.jsonl")}
    guidance = {"guidance": [1, 2, {"weight": 1.5, "weak": {"rate": 0.5}}]}
    plan = planned("guide", sampler_axes=guidance)
    assert [task.spec for task in plan.tasks] == [task.spec for task in planned("train").tasks]
    measured = carried_out(lab, plan)
    assert {report.phase for report in measured} == {"evaluate", "completed"}
    assert {path: path.read_bytes() for path in tmp_path.glob("runs/*/log.jsonl")} == logs
    assert not plan.open_tasks(lab)
    frame = trials_frame(lab, "guide")
    settings = ["", " w=2", " w=1.5 SG(0/0.5) routes=1->1"]
    assert frame.attrs["planned"] == [f"cost/sample_flops{setting}" for setting in settings]
    assert frame[frame.attrs["planned"]].notna().all(axis=None)
