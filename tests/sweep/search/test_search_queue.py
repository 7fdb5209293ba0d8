"""What a search takes for the result of a cell, and how many trials it has left."""

from __future__ import annotations

from collections.abc import Callable

from tests.pretender import Pretender
from tests.sweep.search.test_sampler import planned
from tread_lab.records import stopped_early, suggestions
from tread_lab.records.lab import Lab
from tread_lab.records.stopped_early import Stopped
from tread_lab.specs import RunSpec
from tread_lab.sweep.plan.storage import store_plan
from tread_lab.sweep.search.search_queue import SearchQueue


def test_a_run_that_was_stopped_early_and_completed_since_is_measured(
    lab: Lab, tiny: Callable[..., RunSpec]
) -> None:
    plan, folder = planned(tiny, trials=1), lab.sweep("searched")
    store_plan(folder, plan)
    Pretender(lab).run(SearchQueue(lab, plan))
    (suggestion,) = suggestions.read(folder.suggestions_path)
    for trial in suggestion.trials:
        stopped_early.append(folder.stopped_path, Stopped(trial.run, 5, "others are better"))
    (cell,) = SearchQueue(lab, plan).cells
    assert cell.observation.state == "measured"


def test_a_search_of_a_small_space_has_no_more_trials_left_than_cells(
    lab: Lab, tiny: Callable[..., RunSpec]
) -> None:
    assert SearchQueue(lab, planned(tiny, trials=50)).left == "36 trials left"
    queue = SearchQueue(lab, planned(tiny, trials=2))
    assert queue.left == "2 trials left"
    Pretender(lab, most=4).run(queue)  # the two seeds of the baseline and of a cell
    assert queue.left == "1 trial left"
