"""A stored plan is the plan that is loaded, and another plan under its name is noticed."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.sweep.plans import HELDOUT, plan_of, tiny
from tread_lab.config import UserError
from tread_lab.config.labels import ExcludedCells
from tread_lab.records.lab import Lab
from tread_lab.sweep.plan import Plan, load_plan, store_plan


def planned(**more: Any) -> Plan:
    return plan_of(tiny(), "p", **{"axes": {"route": ["0->1", "0->2"]}, "evaluate": [], **more})


def test_plan_loads_as_stored(lab: Lab) -> None:
    axes = {"route": ["0->1", "0->2", "0->1"]}
    sweep = {"question": "Why?", "where": "end < 2", "evaluate": ["fd@1k"], "seeds": [3, 4]}
    plan = planned(axes=axes, **sweep)
    store_plan(lab.sweep("p"), plan)
    stored = lab.sweep("p").plan()
    loaded = load_plan(lab.sweep("p"))
    assert lab.sweep("p").plan_path.read_text() == stored.text()
    assert loaded.trials == plan.trials and loaded.evaluations == plan.evaluations
    assert (loaded.name, loaded.question, loaded.experiment) == ("p", "Why?", "tiny")
    assert loaded.excluded == (ExcludedCells("end < 2", 1, ({"route": "0->2"},)),)
    assert loaded.sources == json.loads(json.dumps(plan.sources))


def searched(**fields: Any) -> dict[str, Any]:
    search = {"trials": 2, "objectives": ["heldout/loss"], **fields}
    return {"search": search, "evaluate": [HELDOUT]}


@pytest.mark.parametrize(
    ("sweep", "changes", "said"),
    [
        ({}, {"fixed": {"train.lr": 0.1}}, "^--name: "),
        ({}, {"seeds": [1]}, "^--name: "),
        (searched(), {"search": None}, "^search: "),
        (searched(), searched(seed=5), "^search: "),
        (searched(), searched(objectives=["cost/train_flops"]), "^search: "),
        (searched(), {"axes": {"route": ["0->2", "0->1"]}}, "^search: "),
        ({**searched(), "baseline": None}, {"seeds": [0, 1]}, "^search: "),
    ],
)
def test_other_sweep_needs_another_name(
    lab: Lab, sweep: dict[str, Any], changes: dict[str, Any], said: str
) -> None:
    folder = lab.sweep("p")
    store_plan(folder, planned(**sweep))
    text = folder.plan_path.read_bytes()
    with pytest.raises(UserError, match=said):
        store_plan(folder, planned(**{**sweep, **changes}))
    assert folder.plan_path.read_bytes() == text and len(folder.history()) == 1
