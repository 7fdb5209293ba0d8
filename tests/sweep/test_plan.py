"""The tasks of a plan: each run once, and what is open, judged or compared among them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.pretender import ended_run
from tests.sweep.plans import DEEP, plan_of, tiny
from tests.sweep.search.test_suggest import planned as searched
from tread_lab.config import decode, encode
from tread_lab.config.load import load_sweep, shipped_folder
from tread_lab.config.sweep import Experiment, StopEarlySpec, SweepSpec
from tread_lab.cost.training import cost
from tread_lab.hardware import Devices
from tread_lab.records.lab import Lab
from tread_lab.records.run_state import RunState
from tread_lab.records.sweep_folder import Judgement, Suggestion
from tread_lab.sweep.expand import steps_off
from tread_lab.sweep.plan import (
    Plan,
    make_plan,
    pending_tasks,
    plan_sweep,
    plan_with_costs,
    started_tasks,
)

THEN = {"routes": [], "train": {"steps": 4, "warmup": 0}}
PLANS = Path(__file__).parent / "plans"
SEARCH = {"trials": 2, "objectives": ["heldout/loss"]}


def planned(**more: Any) -> Plan:
    return plan_of(tiny(), "p", **{"axes": {"route": ["0->1", "0->2"]}, "seeds": [0, 1], **more})


def routes(tasks: Any) -> list[str]:
    return [str(task.spec.routes[0]) if task.spec.routes else "dense" for task in tasks]


MATCHED = {
    "routes": [{"routes": [f"0->1 by {kind}"]} for kind in ("random", "rows", "structured")]
    + [{"routes": ["0->2 by bernoulli"]}, {"routes": ["0->0", "1->2"]}, {"routes": []}],
    "rates": [{"routes": [{"start": 0, "end": 2, "rate": s}]} for s in (0, 0.1, 0.25, 0.9)],
    "bypasses": [
        {"routes": ["0->B-1"], "bypass": "mask"},
        {"routes": ["0->B-1"], "bypass": "mask", "loss": "discrimination"},
        {"routes": ["0->1"], "bypass": "mdt"},
        {"routes": ["0->1"], "bypass": "sprint", "routes_until": 0.8},
    ],
    "losses": [{"routes": ["0->1"], "loss": loss} for loss in ("plain", "ensemble", "both")],
    "repa": [{"routes": ["0->1"], "repa": {"encoder": "dinov2-base", "block": 1}}],
    "phases": [
        {"routes": ["0->2"], "routes_from": 0.3},
        {"routes": ["0->2"], "routes_from": 100, "routes_until": 0.9},
    ],
    "precisions": [{"routes": ["0->2"], "precision": p} for p in ("fp32", "tf32", "bf16", "fp16")],
}


@pytest.mark.parametrize("trials", MATCHED.values(), ids=MATCHED)
def test_matched_trials_execute_the_flops_of_their_baseline_to_a_step(
    trials: list[dict[str, Any]],
) -> None:
    more = {"baseline": {"routes": [], "repa": None}, "match": "train_flops", "evaluate": []}
    for fields in trials:
        plan = planned(axes={"spend": [1, 4000]}, fixed=fields, **more)
        specs = {trial.run: trial.spec for trial in plan.trials}
        for trial in (trial for trial in plan.trials if trial.baseline):
            dense = specs[str(trial.baseline)]
            step = cost(replace(trial.spec, train=replace(trial.spec.train, steps=1))).train_flops
            assert abs(cost(trial.spec).train_flops - cost(dense).train_flops) <= step
            assert abs(steps_off(plan.price, trial.spec, dense)) <= 1


@pytest.mark.parametrize(
    ("sweep", "line"),
    [
        ({"seeds": [0, 1]}, "the seed of tiny is 7, and this sweep trains seeds=[0, 1]"),
        ({"seeds": [0, 7]}, ""),
        ({"axes": {"train.ema": [{"halflife": 0.3}, 0.9]}},
         "train.ema: the EMA still holds 12% of the initial weights at the end"),
        ({"axes": {"routes_until": [0], "train.steps": [0, 20]}}, ""),
    ],
)  # fmt: skip
def test_settings_without_effect_are_said_before_the_plan(
    lab: Lab, sweep: dict[str, Any], line: str
) -> None:
    base = Experiment(name="tiny", run={**encode(tiny(routes=["0->1"], steps=20)), "seed": 7})
    tree, lines = {"experiment": "tiny", "seeds": [7], "trials": [{}], **sweep}, list[str]()
    devices = Devices.here("cpu")
    plan_sweep(lab, "p", decode(SweepSpec, tree), base, devices, lambda run: run, say=lines.append)
    assert lines == [line] * bool(line)


def test_a_parent_that_is_no_trial_is_counted_apart() -> None:
    plan = planned(axes={}, baseline=None, variants={"f": {"a": {"then": THEN}}})
    assert (len(plan.trials), len(plan.tasks)) == (2, 4)
    assert plan_with_costs(plan)["counts"]["parents"] == plan.parents == 2
    assert [task.evaluations == () for task in plan.tasks] == [True, False, True, False]


def test_a_run_waits_for_its_baseline_only_where_it_is_judged_by_it() -> None:
    assert planned().baselines_first == {}
    plan = replace(planned(), stop_early=StopEarlySpec())
    assert plan.baselines_first == {t.run: t.baseline for t in plan.trials if t.role == "trial"}
    plan = replace(planned(search=SEARCH), stop_early=StopEarlySpec())
    first, second = (trial.run for trial in plan.trials)
    own = plan.trials_of({"route": "0->1"}), plan.trials_of({"route": "0->2"})
    runs = [trial.run for trials in own for trial in trials if trial.role == "trial"]
    assert plan.baselines_first == dict(zip(runs, (first, second, first, second), strict=True))


@pytest.mark.parametrize(("early", "left"), [(None, 5), (StopEarlySpec(), 4)])
def test_a_run_stopped_early_is_open_where_the_plan_stops_none(
    lab: Lab, early: StopEarlySpec | None, left: int
) -> None:
    plan = replace(planned(evaluate=[]), stop_early=early)
    lab.sweep("p").add_judgement(Judgement(plan.trials[2].run, 5, 0.5))
    ended_run(lab, plan.trials[0].spec, step=20)
    assert len(plan.open_tasks(lab)) == left
    assert plan.open_of(lab, plan.tasks[:1]) == []


def test_a_run_that_was_stopped_and_completed_since_is_open_until_it_is_measured(lab: Lab) -> None:
    plan = replace(planned(), stop_early=StopEarlySpec())
    task, folder = plan.tasks[2], lab.run(plan.tasks[2].run)
    folder.create(task.spec)
    lab.sweep("p").add_judgement(Judgement(task.run, 5, 0.5))
    assert plan.open_of(lab, [task]) == []
    folder.finish(RunState.COMPLETED, step=20)
    assert plan.open_of(lab, [task]) == [task]


@pytest.mark.parametrize(
    ("axes", "baseline", "first", "of_each_cell"),
    [
        ({"route": ["0->1"]}, {"routes": []}, 2, [4]),
        ({"route": ["0->1", "0->2"]}, None, 0, [2, 2]),
        ({"route": ["0->1"], "rate": [0, 0.5]}, {"routes": []}, 2, [4, 4]),  # it runs at rate 0
        ({"route": ["0->1", "0->2"], "train.lr": [0.1, 0.2]}, {"routes": []}, 0, [4] * 4),
    ],
)
def test_baselines_that_all_cells_share_alone_are_planned_before_a_search(
    axes: Any, baseline: Any, first: int, of_each_cell: list[int]
) -> None:
    plan = planned(axes=axes, baseline=baseline, search=SEARCH)
    assert repr(plan).count("Trial(") == first
    assert [trial.role for trial in plan.trials] == ["baseline"] * first
    assert [len(own) for own in plan.cells.values()] == of_each_cell
    roles = [[trial.role for trial in own].count("trial") for own in plan.cells.values()]
    assert roles == [2] * len(of_each_cell)
    seeds = [trial.seed for own in plan.cells.values() for trial in own]
    assert seeds == [0, 1] * (sum(of_each_cell) // 2)


def test_the_price_of_each_run_stands_in_the_json() -> None:
    dense, routed, _ = (plan := planned(seeds=[0])).trials
    runs = plan_with_costs(plan)["runs"]
    assert runs[dense.run]["speedup"] == 1.0 < runs[routed.run]["speedup"]
    assert runs[routed.run]["train_flops"] == cost(routed.spec).train_flops
    names = {"parameters", "train_flops", "speedup", "checkpoint_bytes"}
    assert runs[routed.run].keys() == names


@pytest.mark.parametrize(("trials", "coming"), [(1, 3), (3, 3), (5, 5), (36, 36), (50, 36)])
def test_cells_that_stand_for_later_suggestions_are_none_of_the_suggested(
    lab: Lab, trials: int, coming: int
) -> None:
    plan = searched(trials=trials)
    three = {task.run for task in pending_tasks(searched(trials=3), lab)}
    cells = [c for c in plan.space if {t.run for t in plan.trials_of(c)} <= three]
    assert [plan.space.index(cell) // 12 for cell in cells] == [0, 1, 2]  # equal parts of 36
    for number, cell in enumerate(cells):  # those that a search of 3 would stand for
        lab.sweep(plan.name).add_suggestion(Suggestion(number, cell, ()))
    runs = [task.run for task in pending_tasks(plan, lab) if task.spec.routes]
    assert len(runs) == len(set(runs)) == 2 * coming  # two seeds
    lab.run(runs[0]).finish(RunState.FAILED)
    assert [task.run for task in pending_tasks(plan, lab) if task.spec.routes] == runs[1:]


def test_cells_that_stand_for_later_suggestions_vary_on_every_axis(lab: Lab) -> None:
    axes = {"route": {"start": 0, "end": [1, 2, 3]}, "train.steps": [10, 20, 30]}
    plan = plan_of(tiny(model=DEEP), "s", axes=axes, search={"trials": 3})
    steps = {task.spec.train.steps for task in pending_tasks(plan, lab)}
    assert len(steps) > 1  # every third cell has the same


def test_what_has_begun_are_baselines_and_suggested_cells(lab: Lab) -> None:
    plan = searched(trials=3)
    assert started_tasks(plan, lab) == plan.tasks and len(plan.tasks) == 2
    assert pending_tasks(replace(plan, search_spec=None), lab) == list(plan.tasks)
    folder = lab.sweep(plan.name)
    folder.add_suggestion(Suggestion(0, plan.space[4], ()))
    begun = [task.run for task in started_tasks(plan, lab)]
    assert begun == [trial.run for trial in plan.trials_of(plan.space[4])]


@pytest.mark.parametrize("sweep", sorted(path.stem for path in shipped_folder("sweeps").iterdir()))
def test_shipped_sweep_plans_cells_with_costs(sweep: str) -> None:
    name, spec, base = load_sweep(sweep)
    plan = make_plan(name, spec, base, {"device": {"precisions": ["fp32", "bf16"]}})
    tree = plan_with_costs(plan)
    assert plan.trials and set(tree["runs"]) == set(plan.runs())
    assert all(run["train_flops"] > 0 for run in tree["runs"].values())
