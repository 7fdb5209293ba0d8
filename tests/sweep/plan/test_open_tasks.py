"""Tasks still to come: cells from all over the space stand for those of later suggestions."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from tests.sweep.search.test_sampler import planned
from tread_lab.engine.cost.training import cost
from tread_lab.records import suggestions
from tread_lab.records.lab import Lab
from tread_lab.records.suggestions import Suggestion
from tread_lab.specs import RunSpec
from tread_lab.sweep.plan import open_tasks
from tread_lab.sweep.plan.open_tasks import pending_tasks, search_forecast, started_tasks


def test_later_suggestions_are_taken_from_the_middle_of_equal_parts(
    lab: Lab, tiny: Callable[..., RunSpec]
) -> None:
    plan = planned(tiny, trials=3)
    assert plan.search is not None
    cells = [plan.search.cells[number] for number in (6, 18, 30)]  # of 36
    own = [trial.run for cell in cells for trial in plan.search.trials_of(cell)]
    runs = [trial.run for trial in plan.trials]  # the baselines that all cells share come first
    runs += [run for run in own if run not in runs]
    assert [task.run for task in pending_tasks(plan, lab)] == runs and len(runs) == 2 + 6


@pytest.mark.parametrize(("trials", "coming"), [(1, 3), (3, 3), (5, 5), (36, 36), (50, 36)])
def test_cells_that_stand_for_later_suggestions_are_none_of_the_suggested(
    lab: Lab, tiny: Callable[..., RunSpec], trials: int, coming: int
) -> None:
    plan = planned(tiny, trials=trials)
    assert plan.search is not None
    for number, place in enumerate((6, 18, 30)):  # those that a search of 3 would stand for
        suggestion = Suggestion(number, plan.search.cells[place], (), {})
        suggestions.append(lab.sweep(plan.name).suggestions_path, suggestion)
    runs = [task.run for task in pending_tasks(plan, lab) if task.spec.routes]
    assert len(runs) == len(set(runs)) == 2 * coming  # two seeds


def test_a_search_has_its_mean_and_its_worst_cells_before_it(
    lab: Lab, tiny: Callable[..., RunSpec]
) -> None:
    plan = planned(tiny, trials=3)
    assert plan.search is not None
    flops = [
        sum(cost(trial.spec).train_flops for trial in trials if trial.role == "trial")
        for trials in plan.search.trials.values()
    ]
    forecast = search_forecast(plan, lab)
    assert (forecast.suggested, forecast.trials, forecast.cells) == (0, 3, 36)
    assert forecast.mean_flops == 3 * sum(flops) / 36
    assert forecast.worst_flops == sum(sorted(flops)[-3:])


def test_a_search_whose_trials_were_lowered_has_nothing_left(
    lab: Lab, tiny: Callable[..., RunSpec]
) -> None:
    plan = planned(tiny, trials=2)
    assert plan.search is not None
    for number, cell in enumerate(plan.search.cells[:3]):
        path = lab.sweep(plan.name).suggestions_path
        suggestions.append(path, Suggestion(number, cell, (), {}))
    forecast = search_forecast(plan, lab)
    assert (forecast.suggested, forecast.trials) == (3, 2)
    assert (forecast.mean_flops, forecast.worst_flops) == (0, 0)


def test_of_a_large_space_a_sample_tells_the_mean(
    lab: Lab, tiny: Callable[..., RunSpec], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(open_tasks, "_SAMPLED_CELLS", 2)
    plan = planned(tiny, trials=5)
    assert plan.search is not None
    flops = [
        sum(cost(t.spec).train_flops for t in plan.search.trials_of(cell) if t.role == "trial")
        for cell in (plan.search.cells[9], plan.search.cells[27])
    ]
    forecast = search_forecast(plan, lab)
    assert forecast.mean_flops == 5 * sum(flops) / 2
    assert forecast.worst_flops == sum(flops) + 3 * max(flops)


def test_what_has_begun_are_baselines_and_suggested_cells(
    lab: Lab, tiny: Callable[..., RunSpec]
) -> None:
    plan = planned(tiny, trials=3)
    assert plan.search is not None
    assert started_tasks(plan, lab) == plan.tasks and len(plan.tasks) == 2
    path = lab.sweep(plan.name).suggestions_path
    suggestions.append(path, Suggestion(0, plan.search.cells[4], (), {}))
    begun = [task.run for task in started_tasks(plan, lab)]
    assert begun == [trial.run for trial in plan.search.trials_of(plan.search.cells[4])]


def test_a_plan_without_a_search_has_begun_as_a_whole(
    lab: Lab, tiny: Callable[..., RunSpec]
) -> None:
    plan = replace(planned(tiny), search=None)
    assert started_tasks(plan, lab) == plan.tasks and len(plan.tasks) == 2
    assert pending_tasks(plan, lab) == list(plan.tasks)


def test_beyond_400_cells_each_may_be_as_dear_as_the_dearest(
    lab: Lab, tiny: Callable[..., RunSpec], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The last of 500 cells has 1,000 FLOPs, and each other one has one FLOP."""
    prices: list[float] = []

    def flops(trials: tuple[float, ...]) -> float:
        prices.extend(trials)
        return trials[0]

    monkeypatch.setattr(open_tasks, "_flops", flops)
    plan = planned(tiny, trials=500)
    assert plan.search is not None
    cells = tuple({"number": number} for number in range(500))
    trials = {repr(cell): (1000.0 if cell == cells[-1] else 1.0,) for cell in cells}
    search = replace(plan.search, cells=cells, trials=trials)  # type: ignore[arg-type]
    forecast = search_forecast(replace(plan, search=search), lab)
    assert len(prices) == 400 and (forecast.trials, forecast.cells) == (500, 500)
    assert forecast.worst_flops == 399 + 1000 + 100 * 1000
    assert forecast.mean_flops == 500 * 1399 / 400
