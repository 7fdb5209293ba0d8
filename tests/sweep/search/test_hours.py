"""The hours of a sweep end its runs; more hours continue."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from tests.pretender import Pretender
from tests.sweep.plans import DEEP, plan_of, tiny
from tread_lab.records.lab import Lab
from tread_lab.records.sweep_folder import Stopwatch, hours_text, seconds_spent
from tread_lab.sweep.plan.plan import Plan
from tread_lab.sweep.search.hours import TimedQueue
from tread_lab.sweep.search.search_queue import SearchQueue
from tread_lab.sweep.trial.task import ListQueue


def planned(**more: Any) -> Plan:
    axes = {"route": {"start": 0, "end": "0..5"}}
    return plan_of(tiny(model=DEEP), "budgeted", **{"axes": axes, **more})


def queued(lab: Lab, hours: float, spent: float = 0.0) -> TimedQueue:
    """A queue of two runs."""
    watch = Stopwatch(lab.sweep("budgeted").spent_path)
    watch._started -= spent
    return TimedQueue(ListQueue(planned().open_tasks(lab)[:2]), hours, watch)


def test_search_continues_with_more_hours(lab: Lab) -> None:
    search = {"trials": 4, "startup": 2, "objectives": ["heldout/loss"]}
    path = lab.sweep("budgeted").spent_path
    for hours, session, done in ((1.0, 3601.0, 0), (3.0, 0.0, 1 + 4)):
        plan, pretender = planned(search=search, hours=hours), Pretender(lab, 1)
        watch = Stopwatch(path)
        watch._started -= session
        queue = TimedQueue(SearchQueue(lab, plan), plan.hours, watch)
        if session:
            assert queue.next() is None and queue.closed
        else:
            pretender.run(queue)
        queue.close()
        assert len(pretender.done) == done
    assert hours_text(lab.sweep("budgeted"), 3.0) == "3 h (1 h spent)"
    assert hours_text(lab.sweep("budgeted"), None) == ""


@pytest.mark.parametrize(
    ("given", "ended", "spent", "over", "full"),
    [
        (0, 0, 7200.0, False, False),
        (0, 0, 7200.5, True, True),
        (2, 1, 7200.5, True, True),  # the last run is under way
        (2, 2, 7200.5, True, False),  # nothing is left undone
    ],
)
def test_hours_are_over_once_more_than_all_are_spent(
    lab: Lab, given: int, ended: int, spent: float, over: bool, full: bool
) -> None:
    queue = queued(lab, 2.0)
    tasks = [queue.next() for _ in range(given)]
    for task in tasks[:ended]:
        assert task is not None
        queue.ended(task)
    assert (queue.finished, queue.over) == (given == 2, ended == 2)
    assert not queue.closed and not queue.stop
    queue.watch = SimpleNamespace(seconds=spent, note=lambda now=False: None)  # type: ignore[assignment]
    assert (queue.stop, queue.closed, queue.over) == (over, full, ended == 2)
    left = "1 run" if ended == 1 else f"{2 - ended} runs"
    assert queue.left == f"{left} left; the same command with more hours continues"
    assert (queue.next() is None) == (over or given == 2)


def test_a_closed_queue_stays_closed_and_one_that_stops_records_its_last_second(lab: Lab) -> None:
    queue = queued(lab, 1.0, 3601.0)
    assert queue.next() is None and queue.closed and queue.closed and queue.finished
    assert queue.stop and queue.closed and queue.next() is None
    assert not queue.over and queue.left.startswith("2 runs left")
    queue = queued(lab, 2.0)
    queue.queue.stop = True  # type: ignore[misc]
    assert queue.stop and queue.next() is None and not queue.closed
    queue.watch._started -= 7.0  # of an entry each quarter of a minute
    queue.close()
    assert seconds_spent(queue.watch.path) == pytest.approx(3608.0, abs=1.0)
