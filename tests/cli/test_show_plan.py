"""The lines of a plan: what will run, what is left out and why, and what it costs."""

from __future__ import annotations

from typing import Any

import pytest

from tests.pretender import ended_run
from tests.sweep.plans import plan_of
from tests.synthetic import tiny_spec
from tread_lab.cli.console import answers
from tread_lab.cli.show_plan import show_plan
from tread_lab.hardware import Devices
from tread_lab.records.lab import Lab
from tread_lab.records.sweep_folder import Suggestion
from tread_lab.sweep.plan import Plan

SPACE = {"route": {"start": "0..3", "end": "4..7"}}
WIDE = {"route": {"start": "0..2", "end": "1..2"}, "train.batch": [8, 16]}
SEARCH = {"trials": 6, "startup": 3, "objectives": ["heldout/loss"], "parallel": 3}
PARENT = {"then": {"routes": [], "train": {"steps": 10}}}
SPARSE = {"samples": {"sampler": {"guidance": {"weight": 2, "weak": {"rate": 0.9}}}}}


def placements(**more: Any) -> Plan:
    """Two placements and a baseline on the embedded images."""
    return plan_of(tiny_spec(None), "placement", **{"axes": {"route": ["2->8", "0->4"]}, **more})


def shown(plan: Plan, lab: Lab, capsys: pytest.CaptureFixture[str]) -> str:
    show_plan(answers, plan, lab, plan.tasks, Devices.here("cpu"))
    return " ".join(capsys.readouterr().out.split())


@pytest.mark.parametrize(
    ("sweep", "said"),
    [
        ({"question": "Where?"}, "placement: Where?"),
        ({}, "DiT-12x32/2 (238,980 parameters) on fashion16, 400 steps of 16: 1 baseline, "),
        ({}, "3 runs open, 1 at once; no time is predicted"),
        ({"axes": WIDE, "where": "start < end"}, "not planned: `where` keeps only start < end"),
        ({"axes": {"route": ["2->8"], "rate": [0, 0.5]}}, "1 cell: "),
        ({"axes": {}, "fixed": PARENT, "baseline": None}, "1 parent to start from"),
        ({"axes": {"route": ["2->8"], "bypass": ["route", "sprint"]}}, "238,980 to 241,092 param"),
        ({"match": "train_flops"}, "costs equal the baseline's to 0."),
        ({"axes": SPACE, "search": SEARCH}, "search by tpe: 6 of 16 cells, 0 suggested, 1 run"),
        ({"hours": 2}, "hours: 2 h (0 h spent)"),
        ({"axes": {}, "fixed": {"then": {"routes": ["2->8"]}}, "baseline": None,
          "evaluate": [SPARSE]}, "2 runs of tiny"),
    ],
)  # fmt: skip
def test_plan_shows_what_it_holds(
    sweep: dict[str, Any], said: str, lab: Lab, capsys: pytest.CaptureFixture[str]
) -> None:
    assert said in shown(placements(**sweep), lab, capsys)


def test_search_counts_its_suggestions(lab: Lab, capsys: pytest.CaptureFixture[str]) -> None:
    plan = placements(axes=SPACE, search=SEARCH, baseline=None)
    assert plan.tasks == ()
    lab.sweep(plan.name).add_suggestion(Suggestion(0, plan.space[0], ()))
    assert "6 of 16 cells, 1 suggested" in shown(plan, lab, capsys)


def test_long_plans_count_the_rest(lab: Lab, capsys: pytest.CaptureFixture[str]) -> None:
    routes = [f"{i}->{j}" for i in range(12) for j in range(i, 12)][:40]
    assert "... and 1 more" in shown(placements(axes={"route": routes}), lab, capsys)


def test_finished_plan_says_so(lab: Lab, capsys: pytest.CaptureFixture[str]) -> None:
    plan = placements(evaluate=[])
    for task in plan.tasks:
        ended_run(lab, task.spec, step=400)
    show_plan(answers, plan, lab, plan.open_tasks(lab), Devices.here("cpu"))
    assert "everything is done" in " ".join(capsys.readouterr().out.split())
