"""The sweep file of a report gives the same trials, whatever becomes of the shipped experiment."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.sweep.plans import plan_of, tiny
from tread_lab.config.load import load_sweep
from tread_lab.sweep.plan import make_plan
from tread_lab.sweep.repetition import sweep_file

ROUTES = {"axes": {"route": ["1->2", "0->2"], "rate": [0.25, 0.5]}, "seeds": [0, 1]}
IN_AN_INTERVAL = {"samples": {"sampler": {"guidance": {"weight": 2, "interval": [0.2, 5]}}}}


@pytest.mark.parametrize(
    "sweep",
    [
        ROUTES,
        {**ROUTES, "baseline": None},
        {"axes": {"process": ["edm", "flow"]}, "variants": {"r": {"a": {"routes": ["0->1"]}}}},
        {**ROUTES, "where": "start > 0", "question": "Where?"},
        {**ROUTES, "variants": {"of": {"base": {}, "own": {"train.steps": 3}}}},
        {**ROUTES, "match": "train_flops", "fixed": {"train": {"steps": 9}}},
        {"fixed": {"route": "0->2", "process": "flow"}, "axes": {"rate": [0.25, 0.5]}},
        {**ROUTES, "evaluate": [IN_AN_INTERVAL], "sampler_axes": {"guidance.weight": [1, 2]}},
    ],
)
def test_file_of_report_plans_same_runs(sweep: dict[str, Any], tmp_path: Path) -> None:
    plan = plan_of(tiny(steps=6, model={"depth": 4, "width": 24, "heads": 2}), "kept", **sweep)
    plan = replace(plan, experiment="of_another_folder")
    text, path = sweep_file(plan), tmp_path / "kept.yaml"
    assert "  model: {backbone: dit, depth: 4" in text  # a line for each part
    assert "&id" not in text
    path.write_text(text)
    again = make_plan(*load_sweep(str(path)))
    assert [(t.run, t.role, t.baseline) for t in again.trials] == [
        (t.run, t.role, t.baseline) for t in plan.trials
    ]
    assert [task.evaluations for task in again.tasks] == [t.evaluations for t in plan.tasks]
    clipped = make_plan(*load_sweep(str(path), ["train.clip=3"]))
    assert {trial.spec.train.clip for trial in clipped.trials} == {3}
