"""The lines of a plan: what will run, what is left out and why, and what it costs."""

from __future__ import annotations

from typing import Any

import pytest
from rich.console import Console

from tests.sweep.plans import HELDOUT, plan_of
from tests.synthetic import small, tiny_spec, write_sweep
from tests.terminal.conftest import Screen
from tread_lab.records.lab import Lab
from tread_lab.records.sweep_folder import Judgement, Suggestion
from tread_lab.sweep.plan.forecast import RemainingTime
from tread_lab.sweep.plan.plan import Plan
from tread_lab.terminal.console import answers
from tread_lab.terminal.plan import (
    Measurement,
    hours_lines,
    show_measurements,
    show_plan,
)

SEARCH = {"trials": 2, "startup": 2, "objectives": ["heldout/loss"]}
SPACE = {"route": {"start": "0..3", "end": "4..7"}}
LATENTS = {"source": "latents", "path": "x", "channels": 4, "size": 32, "classes": 10}


def samples(weight: float, **more: Any) -> dict[str, Any]:
    sampler = {"guidance": weight, **more.pop("sampler", {})}
    return {"samples": {"metrics": ["fd"], "count": 1000, "sampler": sampler, **more}}


def placements(**more: Any) -> Plan:
    """Two placements and a baseline on the embedded images."""
    return plan_of(tiny_spec(None), "placement", **{"axes": {"route": ["2->8", "0->4"]}, **more})


def show(out: Console, plan: Plan, lab: Lab, remaining: RemainingTime | None = None) -> None:
    """Show a plan whose time is not known."""
    show_plan(out, plan, lab, remaining or RemainingTime(None, 3), 2)


def test_a_plan_shows_its_question_its_runs_what_is_left_out_and_their_cost(
    lab: Lab, screen: Screen
) -> None:
    wide = {"route": {"start": "0..2", "end": "1..2"}, "train.batch": [8, 16]}
    stages = {"heldout_loss": {"images": 8, "levels": 2, "at": [100, "end"]}}
    three = [samples(1, at=[100, "end"]), samples(2), samples(3), stages, "layer_similarity"]
    rows = {"route": ["2->8"], "rate": [0, 0.5], "model.width": [32, 64]}
    kid = {"samples": {"metrics": ["kid"], "count": 1000, "at": [100, "end"]}}
    for title, plan in {
        "a question": placements(question="Where?"),
        "an fp32 block": placements(
            axes={"route": ["2->8"], "precision": ["bf16"], "fp32_block": ["j+1"]}
        ),
        "cells left out, measured in training": placements(
            axes=wide, where="start < end", seeds=[0, 1], evaluate=three
        ),
        "cells that are the run of a baseline, several models": placements(axes=rows),
        "a parent": placements(
            axes={"route": ["2->8"]}, fixed={"then": {"routes": [], "train": {"steps": 10}}}
        ),
        "one source of data": placements(
            axes={"route": ["2->8"], "data": [LATENTS]}, evaluate=[kid]
        ),
        "two sources": placements(axes={"route": ["2->8"], "data": [LATENTS, {}]}, evaluate=[kid]),
    }.items():  # fmt: skip
        screen(title, show, answers, plan, lab)


def test_a_run_that_others_start_from_is_asked_for_no_images(
    lab: Lab, capsys: pytest.CaptureFixture[str]
) -> None:
    """Guidance by routed branches takes the routes of a run; its parent may have none."""
    sparse = {"weight": 2, "strong": {"rate": 0.3}, "weak": {"rate": 0.9}}
    plan = placements(
        axes={}, baseline=None, fixed={"then": {"routes": ["2->8"]}},
        evaluate=[samples(1), samples(1, sampler={"guidance": sparse})],
    )  # fmt: skip
    show(answers, plan, lab)
    assert "2 runs of tiny" in capsys.readouterr().out


def test_the_time_left_stands_behind_the_flops(lab: Lab, screen: Screen) -> None:
    for title, remaining in {
        "all done": RemainingTime(0.0, 0),
        "one run, no time": RemainingTime(None, 1),
        "earlier runs": RemainingTime(60.0, 1, "from 3 earlier runs"),
        "two runs": RemainingTime(7200.0, 2),
        "one of them trained": RemainingTime(7200.0, 2, "", 1),
    }.items():
        screen(title, show, answers, placements(axes={}), lab, remaining)


def test_a_search_says_its_space_and_what_is_to_come(lab: Lab, screen: Screen) -> None:
    search = {"trials": 6, "startup": 3, "objectives": ["heldout/loss", "cost/train_flops"],
              "parallel": 3}  # fmt: skip
    plan = placements(axes=SPACE, search=search, seeds=[0, 1])
    screen("none suggested", show, answers, plan, lab)
    for number, cell in enumerate(plan.space[:2]):
        lab.sweep(plan.name).add_suggestion(Suggestion(number, cell, ()))
    screen("two suggested", show, answers, plan, lab)


def test_a_run_that_this_sweep_stopped_early_is_shown_so(lab: Lab, screen: Screen) -> None:
    write_sweep(lab.root, small(states={(2, 8): "interrupted"}))
    plan = placements(stop_early="asha")
    folder = lab.sweep("placement")
    folder.add_judgement(Judgement(plan.tasks[1].run, 7, 0.5))
    screen("two runs were done", show, answers, plan, lab)


@pytest.mark.parametrize(("runs", "last"), [(40, []), (41, ["... and 1 more"])])
def test_more_than_40_runs_are_counted(
    runs: int, last: list[str], lab: Lab, capsys: pytest.CaptureFixture[str]
) -> None:
    routes = [f"{i}->{j}" for i in range(12) for j in range(i, 12)][: runs - 1]
    show(answers, placements(axes={"route": routes}), lab)
    assert capsys.readouterr().out.splitlines()[42:-2] == last


@pytest.mark.parametrize(
    ("steps", "said", "most"), [(52, "-2.0 steps", "2"), (56, "+1.6 steps", "1.6")]
)
def test_it_is_said_whether_a_trial_spends_less_or_more_where_steps_do_not_match(
    steps: int, said: str, most: str, lab: Lab, capsys: pytest.CaptureFixture[str]
) -> None:
    axes = {"route": ["0->11"], "rate": [0.9], "routes_until": [0.9]}
    plan = plan_of(tiny_spec(None, steps=steps), "p", axes=axes, match="train_flops")
    show(answers, plan, lab)
    shown = capsys.readouterr().out
    assert f" spends {said} of its baseline's: nothing is nearer" in shown
    assert f" spends what its baseline spends, to {most} of a step" in shown
    show(answers, placements(match="train_flops"), lab)
    shown = capsys.readouterr().out
    assert ", to 0." in shown and "nothing is nearer" not in shown


def test_what_is_measured_already_takes_no_more_time(screen: Screen) -> None:
    found = [
        Measurement("a", "fd@1k", 1000, done=True),
        Measurement("b", "fd@1k", 1000, done=False),
        Measurement("b", "heldout_loss", 32, done=False),
    ]
    screen("two are left", show_measurements, found, as_json=False)
    screen("none is left", show_measurements, found[:1], as_json=False)


def test_what_a_search_may_run_counts_where_nothing_is_certain(lab: Lab, screen: Screen) -> None:
    """Its size, models, data and evaluations are then those of all cells."""
    kid = {"samples": {"metrics": ["kid"], "count": 1000, "at": [100, "end"]}}
    own = placements(
        axes={**SPACE, "model.width": [32, 64]}, search=SEARCH, baseline=None,
        evaluate=[HELDOUT, kid], fixed={"data": LATENTS},
    )  # fmt: skip
    assert own.tasks == ()
    screen("plan", show, answers, own, lab)


def test_a_network_of_two_bypasses_has_the_parameters_of_both(lab: Lab) -> None:
    both = placements(axes={"route": ["2->8"], "bypass": ["route", "sprint"]})
    lines = [*hours_lines(both, RemainingTime(None, 3))]
    assert lines == ["parameters: DiT-12x32/2 238,980 to 241,092"]


def test_known_times_add_up_to_device_hours(lab: Lab) -> None:
    remaining = RemainingTime(1800.0, 2, "from 3 earlier runs", device_seconds=7200.0)
    assert "2 device-hours with evaluations" in hours_lines(placements(), remaining)
