"""What a search takes for the result of a cell, and how many trials it has left."""

from __future__ import annotations

from typing import Any

import pytest

from tests.pretender import Pretender
from tests.sweep.search.test_suggest import planned
from tread_lab.records.lab import Lab
from tread_lab.records.run_state import RunState
from tread_lab.sweep import suggest as search_queue
from tread_lab.sweep.suggest import Observation, SearchQueue


def test_sampler_sees_no_chance_result(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
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
def test_cell_needs_a_value_of_each_run(lab: Lab, states: list[str], seen: str) -> None:
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
    assert len(tasks) == 4 and queue.done
    assert [cell.state for cell in queue.observations] == [seen]
    assert queue.observations[0].values is None
