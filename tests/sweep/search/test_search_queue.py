"""What a search takes for the result of a cell, and how many trials it has left."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from tests.pretender import Pretender
from tests.sweep.plans import plan_of, tiny
from tests.sweep.search.test_suggest import planned
from tread_lab.config.sweep import StopEarlySpec
from tread_lab.records.lab import Lab
from tread_lab.records.run_state import RunState
from tread_lab.records.sweep_folder import Judgement, Suggestion
from tread_lab.sweep.plan import store_plan
from tread_lab.sweep.search import suggest as search_queue
from tread_lab.sweep.search.suggest import Observation, SearchQueue


def test_a_run_that_was_stopped_early_and_completed_since_is_measured(lab: Lab) -> None:
    plan, folder = planned(trials=1), lab.sweep("searched")
    store_plan(folder, plan)
    Pretender(lab).run(SearchQueue(lab, plan))
    (suggestion,) = folder.suggestions()
    for trial in suggestion.trials:
        folder.add_judgement(Judgement(trial.run, 5, 0.5))
    (cell,) = SearchQueue(lab, plan).observations
    assert cell.state == "measured"


def test_a_search_tries_so_many_cells_and_of_a_small_space_all(lab: Lab) -> None:
    queue = SearchQueue(lab, planned(trials=2))
    assert queue.left == "2 trials left"
    Pretender(lab, most=4).run(queue)  # the two seeds of the baseline and of a cell
    assert queue.left == "1 trial left"
    more, axes = (
        {"sampler": "random", "trials": 50, "objectives": ["heldout/loss"]},
        ["0->1", "0->2"],
    )
    small = plan_of(tiny(), "small", axes={"route": axes}, search=more)
    queue = SearchQueue(lab, small)
    assert queue.left == "2 trials left"
    Pretender(lab).run(queue)
    assert queue.exhausted and queue.done and queue.next() is None
    assert (queue.left, len(lab.sweep("small").suggestions())) == ("0 trials left", 2)


def test_a_later_session_knows_the_suggested_cells_of_its_space(lab: Lab) -> None:
    plan = planned(trials=2)
    folder = lab.sweep("searched")
    folder.add_suggestion(Suggestion(0, plan.space[4], ()))
    folder.add_suggestion(Suggestion(1, {"start": 50, "end": 60}, ()))  # of another space
    (cell,) = SearchQueue(lab, plan).observations
    assert cell.cell == 4


def test_a_search_shows_its_sampler_no_result_that_came_by_chance(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    shown: list[list[Observation]] = []
    cells = iter((0, 7, 14, 21))

    def propose(search: Any, objectives: Any, space: Any, seen: Any) -> Any:
        shown.append(list(seen))
        return next(cells)

    monkeypatch.setattr(search_queue, "propose", propose)
    queue = SearchQueue(lab, planned(parallel=2, trials=4))
    Pretender(lab).run(queue)
    states = [[o.state for o in seen] for seen in shown]
    assert states == [
        [], ["running"], ["measured", "running"], ["measured", "measured", "running"]
    ]  # fmt: skip
    assert [o.cell for o in shown[3]] == [0, 7, 14]
    (first, *_) = lab.sweep("searched").suggestions()
    assert (first.number, len(first.trials)) == (0, 4)


@pytest.mark.parametrize(
    ("states", "seen"),
    [
        (["", "", "", "failed"], "failed"),
        (["", "", "", "diverged"], "bad"),
        (["diverged", "", "", ""], "failed"),  # of the baseline alone: it says nothing of the cell
        (["", "", "", "open"], "failed"),  # which goes on in a later session
        (["", "", "diverged", "open"], "failed"),
        (["", "", "", "completed"], "failed"),  # its evaluation has failed
    ],
)
def test_a_cell_is_not_measured_before_each_of_its_runs_has_a_value(
    lab: Lab, states: list[str], seen: str
) -> None:
    queue = SearchQueue(lab, planned(trials=1))
    pretender = Pretender(lab)
    tasks = []
    while (task := queue.next()) is not None:
        state = states[len(tasks)]
        tasks.append(task)
        lab.run(task.run).create(task.spec)
        if not state:
            pretender.finish(task)
        elif state != "open":
            lab.run(task.run).finish(RunState(state), step=3, metrics={"cost/train_flops": 1.0})
        queue.ended(task)
    assert len(tasks) == 4 and queue.left == "0 trials left"
    assert [cell.state for cell in queue.observations] == [seen]
    assert queue.observations[0].values is None


def test_a_search_is_over_once_its_last_run_has_ended(lab: Lab) -> None:
    queue, pretender = SearchQueue(lab, planned(trials=1)), Pretender(lab)
    seen, tasks = [(queue.stop, queue.exhausted, queue.done)], []
    while (task := queue.next()) is not None:
        tasks.append(task)
        seen.append((queue.stop, queue.exhausted, queue.done))
    for task in tasks:
        pretender.finish(task)
        queue.ended(task)
        seen.append((queue.stop, queue.exhausted, queue.done))
    no, handed_out, over = (False,) * 3, (False, True, False), (False, True, True)
    # The two baselines come first; the suggestion of the one cell finishes the suggesting alone.
    assert seen == [*[no] * 4, *[handed_out] * 4, over]


def test_runs_that_are_judged_wait_for_their_baseline(lab: Lab) -> None:
    early = StopEarlySpec(grace=5)
    plan = replace(planned(trials=2, parallel=2), stop_early=early)
    queue = SearchQueue(lab, plan)
    given = [queue.next() for _ in range(5)]
    dense = [task for task in given if task is not None]
    assert len(dense) == 2 and not any(task.spec.routes for task in dense)
    queue.ended(dense[0])
    assert queue.next() is not None
