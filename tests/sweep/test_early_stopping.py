"""Early stopping compares whole cells by held-out loss at rungs, from the records alone."""

from __future__ import annotations

import math
import random
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from tests.pretender import Pretender, loss_of
from tests.sweep.plans import DEEP, carry_out, plan_of, tiny
from tests.train.runs import differing
from tread_lab.config import UserError
from tread_lab.config.evaluation import HeldoutSpec
from tread_lab.records.early_stopping import EarlyStopping, Standing, choose, stopped_early
from tread_lab.records.lab import Lab
from tread_lab.results import started_cells, trials_frame
from tread_lab.sweep.plan import Plan, store_plan
from tread_lab.sweep.task import RungQueue, Task

ROUTES = ["2->5", "2->4", "1->5", "2->6", "3->6", "1->3", "0->5", "0->7"]  # the best first


def planned(routes: list[str] = ROUTES, **more: Any) -> Plan:
    early = {"grace": 10, "reduction": 2}
    tree = {"axes": {"route": routes}, "seeds": [0, 1], "stop_early": early, **more}
    return plan_of(tiny(steps=40, model=DEEP), "halved", **tree)


def queue_of(lab: Lab, plan: Plan) -> RungQueue:
    """The queue of a new session."""
    early = EarlyStopping.of(lab, plan)
    assert early is not None
    return RungQueue(early, plan.open_tasks(lab), {task.run: task for task in plan.tasks})


def at(begun: int, *scores: float, ended: bool = False) -> Standing:
    return Standing(begun, dict(enumerate(scores)), ended, ended)


@pytest.mark.parametrize(
    ("standings", "quiet", "chosen"),
    [
        ([at(0), at(0)], True, 0),
        ([at(1, 0.5), at(1), at(0)], False, 2),  # one cell is no half of two
        ([at(1, 0.5), at(1, 0.4), at(0)], False, 1),
        ([at(2, 0.5), at(2, 0.4, 0.3), at(1, 0.2), at(1, 0.6)], False, 2),
        ([at(1, 0.1), at(2, 0.5, 0.4), at(2, 0.3, 0.2), at(1)], False, 2),  # the highest rung first
        ([at(1, math.inf), at(1, math.inf)], True, None),  # whatever failed goes nowhere
        ([at(1, math.inf), at(1, 0.5), at(1, math.inf)], False, 1),
        ([at(2, 0.1, 0.2), at(1, 0.5)], False, None),  # one alone at its rung waits ...
        ([at(2, 0.1, 0.2), at(1, 0.5)], True, 0),  # ... until nothing else can happen
        ([at(3, 0.1, 0.2, ended=True), at(2, 0.2, 0.3), at(1, 0.5)], True, None),
    ],
)
def test_choice_is_the_best_half(standings: list[Standing], quiet: bool, chosen: Any) -> None:
    assert choose(standings, 2, quiet=quiet) == chosen


@pytest.mark.parametrize("slots", [1, 3, 20])
def test_cells_advance_with_all_their_seeds(lab: Lab, slots: int) -> None:
    plan = planned()
    store_plan(lab.sweep("halved"), plan)
    pretender = Pretender(lab, slots, random.Random(slots))
    pretender.run(queue_of(lab, plan))
    parts = Counter(task.until for task in pretender.done if task.spec.routes)
    dense = [task for task in pretender.done if not task.spec.routes]
    assert parts[10] == 16 > parts[20] >= parts[40] >= 2 and [t.until for t in dense] == [40, 40]
    assert len({task.run for task in pretender.done}) == 18
    frame = trials_frame(lab, "halved")
    states = frame.groupby("cell")["state"].agg(lambda seeds: "/".join(sorted({*seeds})))
    assert {*states} == {"completed", "stopped"} and states["2->5 s=0.5"] == "completed"
    assert started_cells(frame) == 8 and set(frame["steps_done"]) <= {10, 20, 40}
    assert plan.open_tasks(lab) == [] and queue_of(lab, plan).done


@pytest.mark.parametrize("kill", range(2, 24, 3))
def test_killed_sweep_decides_alike(tmp_path: Path, kill: int) -> None:
    plan, labs = planned(), (Lab(tmp_path / "whole"), Lab(tmp_path / "cut"))
    whole, first, second = Pretender(labs[0]), Pretender(labs[1], most=kill), Pretender(labs[1])
    whole.run(queue_of(labs[0], plan))
    first.run(queue_of(labs[1], plan))
    assert stopped_early(labs[1], plan) == {}, "nothing is stopped while cells go on"
    second.run(queue_of(labs[1], plan))
    assert [*map(repr, first.done + second.done)] == [*map(repr, whole.done)]


def test_diverged_seed_is_never_promoted(lab: Lab) -> None:
    plan = planned()
    pretender = Pretender(lab, diverges="2->5")
    pretender.run(queue_of(lab, plan))
    whole = [task for task in pretender.done if task.until == 40 and task.spec.routes]
    assert {str(task.spec.routes[0]).partition(" ")[0] for task in whole} >= {"2->4"}
    assert all(loss_of(task.spec) > 1.009 for task in whole)


def test_matched_cells_are_measured_at_shares(lab: Lab) -> None:
    early = EarlyStopping.of(lab, planned(match="train_flops"))
    assert early is not None and early.rungs[-1] * 2 <= early.shortest
    lengths = {length for cell in early.cells for length in cell.values()}
    assert len(lengths) > 4
    assert all(
        abs(early.steps(n)[-1] / n - early.rungs[-1] / early.shortest) < 0.02 for n in lengths
    )


def test_needed_runs_are_never_judged(lab: Lab) -> None:
    family = {"then": {"none": {}, "dense": {"then": {"routes": [], "train": {"steps": 30}}}}}
    plan = planned(["0->1"], variants=family)
    early = EarlyStopping.of(lab, plan)
    assert early is not None and EarlyStopping.of(lab, planned(stop_early=None)) is None
    children = {t.run for t in plan.trials if t.role == "trial" and t.spec.parent}
    assert {run for cell in early.cells for run in cell} == children


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ({"stop_early": {"grace": 21, "reduction": 2}}, r"grace: must be at most 20 .*got 21"),
        ({"search": {"trials": 2}}, "stop_early: must be null with `search`"),
        (
            {"axes": {"route": ["0->1"], "process": [{"kind": "edm"}, {"kind": "flow"}]}},
            "stop_early: must be null where axes change the scale .* got process",
        ),
    ],
)
def test_incomparable_cells_are_refused(lab: Lab, more: dict[str, Any], said: str) -> None:
    with pytest.raises(UserError, match=said):
        EarlyStopping.of(lab, planned(**more))


def test_training_in_parts_is_bitwise_equal(tmp_path: Path) -> None:
    whole, parts = Lab(tmp_path / "whole"), Lab(tmp_path / "parts")
    spec, probe = tiny(routes=["1->2"]), HeldoutSpec(images=8, levels=2)
    rungs = [HeldoutSpec(images=8, levels=2, step=step) for step in (3, 13)]
    carry_out(whole, Task(spec, (probe,)))
    for rung in (*rungs, None):
        reports = carry_out(parts, Task(spec, (probe,), rung=rung))
        assert reports[-1].phase == ("paused" if rung else "completed")
    one, other = whole.run_of(spec), parts.run_of(spec)
    assert differing(one, other) == []
    losses = [
        [(e.step, e.value) for e in run.entries() if e.key == "train/loss"] for run in (one, other)
    ]
    assert losses[0] == losses[1]
    assert [a.ended for a in other.attempts()] == ["paused", "paused", "completed"]
    assert all(other.evaluation(rung).done for rung in rungs)
    assert one.evaluation(probe).read()["metrics"] == other.evaluation(probe).read()["metrics"]  # type: ignore[index]
