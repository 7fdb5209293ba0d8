"""The tasks of a plan: each run once, and what is open, judged or compared among them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tread_lab.engine.cost.training import cost
from tread_lab.records import stopped_early
from tread_lab.records.lab import Lab
from tread_lab.records.status import RunState
from tread_lab.records.stopped_early import Stopped
from tread_lab.specs import RunSpec, decode, encode
from tread_lab.specs.sweep import Experiment, SweepSpec
from tread_lab.sweep.plan.plan import Plan, make_plan
from tread_lab.sweep.plan.plan_json import plan_with_costs

Tiny = Callable[..., RunSpec]
THEN = {"routes": [], "train": {"steps": 4, "warmup": 0}}
SEARCH = {"trials": 2, "objectives": ["heldout/loss"]}


def planned(tiny: Tiny, **more: Any) -> Plan:
    tree = {"experiment": "tiny", "axes": {"route": ["0->1", "0->2"]}, "seeds": [0, 1], **more}
    tree.setdefault("evaluate", [{"heldout_loss": {"images": 8, "levels": 2}}])
    return make_plan("p", decode(SweepSpec, tree), Experiment(name="tiny", run=encode(tiny())))


def routes(tasks: Any) -> list[str]:
    return [str(task.spec.routes[0]) if task.spec.routes else "dense" for task in tasks]


def test_trials_that_share_a_run_are_one_task(tiny: Tiny) -> None:
    plan = planned(tiny)
    assert [t.role for t in plan.trials] == ["baseline"] * 2 + ["trial"] * 4
    assert len(plan.tasks) == 6 and len(plan.tasks_of([*plan.trials, *plan.trials])) == 6
    assert plan.train_flops == sum(cost(trial.spec).train_flops for trial in plan.trials)
    assert plan.possible_trials == plan.trials and plan.possible_tasks == plan.tasks


def test_a_parent_that_is_no_trial_is_counted_apart(tiny: Tiny) -> None:
    plan = planned(tiny, axes={}, baseline=None, variants={"f": {"a": {"then": THEN}}})
    assert (len(plan.trials), len(plan.tasks), plan.parents) == (2, 4, 2)
    assert [task.evaluations == () for task in plan.tasks] == [True, False, True, False]


def test_baselines_come_first_only_where_runs_are_judged_by_them(tiny: Tiny) -> None:
    assert planned(tiny).baselines_first == {}
    plan = planned(tiny, stop_early={"grace": 5})
    assert plan.baselines_first == {t.run: t.baseline for t in plan.trials if t.role == "trial"}


def test_under_a_search_every_cell_waits_for_its_baseline(tiny: Tiny) -> None:
    plan = planned(tiny, search=SEARCH, stop_early={"grace": 5})
    assert plan.search is not None
    first, second = (trial.run for trial in plan.trials)
    own = plan.search.trials_of({"route": "0->1"}), plan.search.trials_of({"route": "0->2"})
    runs = [trial.run for trials in own for trial in trials if trial.role == "trial"]
    assert plan.baselines_first == dict(zip(runs, (first, second, first, second), strict=True))


@pytest.mark.parametrize(("stop_early", "left"), [(None, 5), ("asha", 4)])
def test_a_run_stopped_early_is_open_where_the_plan_stops_none(
    lab: Lab, tiny: Tiny, stop_early: str | None, left: int
) -> None:
    plan = planned(tiny, evaluate=[], **({"stop_early": stop_early} if stop_early else {}))
    stopped_early.append(lab.sweep("p").stopped_path, Stopped(plan.trials[2].run, 5, "worse"))
    folder = lab.run(plan.trials[0].run)
    folder.create(plan.trials[0].spec)
    folder.finish(RunState.COMPLETED, step=20)
    assert len(plan.open_tasks(lab)) == left
    assert plan.open_of(lab, plan.tasks[:1]) == []


def test_a_search_plans_the_baselines_that_all_cells_share(tiny: Tiny) -> None:
    plan = planned(tiny, search=SEARCH)
    assert plan.search is not None
    assert [(t.role, t.seed) for t in plan.trials] == [("baseline", 0), ("baseline", 1)]
    assert [cell["route"] for cell in plan.search.cells] == ["0->1", "0->2"]
    runs = plan.search.trials_of({"route": "0->2"})
    assert [(t.role, t.seed) for t in runs] == [
        ("baseline", 0), ("baseline", 1), ("trial", 0), ("trial", 1)
    ]  # fmt: skip
    assert routes(plan.tasks) == ["dense", "dense"] and len(plan.possible_trials) == 8
    assert sorted(routes(plan.possible_tasks)) == ["0->1", "0->1", "0->2", "0->2"] + ["dense"] * 2


def test_a_baseline_of_some_cells_alone_is_not_planned_before_them(tiny: Tiny) -> None:
    axes = {"route": ["0->1"], "train.lr": [0.001, 0.002]}
    plan = planned(tiny, axes=axes, search=SEARCH)
    assert plan.search is not None and plan.trials == ()
    lrs = [[t.spec.train.lr for t in own] for own in plan.search.trials.values()]
    assert lrs == [[0.001] * 4, [0.002] * 4]


def test_what_a_plan_says_of_its_sweep_is_what_the_file_says(tiny: Tiny) -> None:
    axes = {"route": ["0->1", "0->2", "0->2"]}
    more = {"question": "Why?", "where": "end < 3", "budget": {"trials": 3}, "stop_early": "asha"}
    plan = planned(tiny, **{**more, "axes": axes})
    assert (plan.name, plan.question, plan.experiment) == ("p", "Why?", "tiny")
    assert plan.budget is not None and plan.budget.trials == 3
    assert plan.stop_early is not None and plan.stop_early.kind == "asha"
    assert [(hole.reason, hole.count) for hole in plan.duplicates] == [("written again", 1)]
    assert plan.sources["sweep"]["question"] == "Why?"
    assert plan.sources["experiment"]["name"] == "tiny"
    assert [spec.kind for spec in plan.evaluations] == ["heldout_loss"]


def test_the_price_of_each_run_stands_in_the_json(tiny: Tiny) -> None:
    plan = planned(tiny, seeds=[0])
    tree = plan_with_costs(plan)
    spec = plan.trials[1].spec
    assert tree["counts"] == {
        "trials": 2, "baselines": 1, "parents": 0, "runs": 3, "evaluations": 1, "holes": 0,
        "duplicates": 0,
    }  # fmt: skip
    assert tree["cost"] == {"train_flops": plan.train_flops, "disk_bytes": plan.disk_bytes}
    assert tree["runs"][plan.trials[1].run] == {
        "parameters": cost(spec).parameters,
        "train_flops": cost(spec).train_flops,
        "speedup": round(cost(spec).speedup, 4),
        "checkpoint_bytes": cost(spec).checkpoint_bytes,
    }
    assert tree["runs"][plan.trials[0].run]["speedup"] == 1.0


def test_holes_and_duplicates_are_counted_apart_in_the_json(tiny: Tiny) -> None:
    axes = {"route": ["0->1", "0->2", "0->3", "0->1"]}
    counts = plan_with_costs(planned(tiny, axes=axes, where="end < 2", seeds=[0]))["counts"]
    assert (counts["trials"], counts["holes"], counts["duplicates"]) == (1, 2, 1)


def test_a_search_without_a_baseline_plans_nothing_before_it(tiny: Tiny) -> None:
    plan = planned(tiny, baseline=None, search=SEARCH)
    assert plan.search is not None and plan.trials == ()
    assert [t.seed for t in plan.search.trials_of({"route": "0->2"})] == [0, 1]


def test_of_a_single_cell_the_baselines_alone_are_planned_before_it(tiny: Tiny) -> None:
    plan = planned(tiny, axes={"route": ["0->1"]}, search=SEARCH)
    assert [(t.role, t.seed) for t in plan.trials] == [("baseline", 0), ("baseline", 1)]


def test_a_baseline_of_two_of_four_cells_is_not_shared_by_all(tiny: Tiny) -> None:
    axes = {"route": ["0->1", "0->2"], "train.lr": [0.001, 0.002]}
    plan = planned(tiny, axes=axes, search=SEARCH)
    assert plan.search is not None and plan.trials == ()
    assert [len(own) for own in plan.search.trials.values()] == [4, 4, 4, 4]
    assert "Trial(" not in repr(plan.search)
