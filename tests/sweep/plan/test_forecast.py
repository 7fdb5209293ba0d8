"""A forecast lets each run start, in order, in the slot that is free first."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tread_lab.engine.cost.calibration import Speed
from tread_lab.engine.cost.rates import RATES
from tread_lab.records.lab import Lab
from tread_lab.specs import RunSpec, decode
from tread_lab.specs.evaluation import SamplesSpec
from tread_lab.sweep.plan.forecast import TRIAL_SECONDS, Forecast, kind_of, makespan, starts
from tread_lab.sweep.trial.task import Task


def test_a_run_starts_in_the_slot_that_is_free_first() -> None:
    assert starts([5.0, 1.0, 1.0, 4.0], 2) == [0.0, 0.0, 1.0, 2.0]
    assert starts([2.0, 3.0], 1) == [0.0, 2.0]


def test_the_last_run_to_end_need_not_be_the_last_to_start() -> None:
    assert makespan([9.0, 1.0, 1.0], 2) == 9.0
    assert makespan([2.0, 3.0], 0) == 5.0
    assert makespan([], 2) == 0.0


def test_of_a_begun_run_only_what_is_left_takes_time(
    lab: Lab, tiny: Callable[..., RunSpec]
) -> None:
    begun, fresh = Task(tiny(steps=20)), Task(tiny(steps=20, seed=1))
    speed = Speed(overhead=1.0, per_flop=0, call=0, per_call_flop=0)
    forecast = Forecast(lab, {kind_of(begun.spec): speed}, start=3.0)
    with lab.run(begun.run).log() as log:
        log(15, **{"train/loss": 1.0})
    assert forecast.total([begun]).seconds == 3 + 5 + TRIAL_SECONDS
    assert forecast.total([begun, fresh]).seconds == 3 + 5 + 20 + 2 * TRIAL_SECONDS


def test_references_are_described_once_for_all_runs_of_a_data_set(
    lab: Lab, tiny: Callable[..., RunSpec]
) -> None:
    fid = decode(SamplesSpec, {"metrics": ["fid"], "count": 100})
    tasks = [Task(tiny(seed=seed), (fid,)) for seed in (0, 1, 2)]
    forecast = Forecast(lab, rates=RATES["cpu"])
    references = sum(forecast.references(tasks[0].spec, fid).values())
    assert references > 0
    each = sum(forecast.work(task) + TRIAL_SECONDS for task in tasks)
    assert forecast.total(tasks).seconds == pytest.approx(each + references)


def test_runs_of_another_precision_or_batch_are_another_kind(tiny: Callable[..., RunSpec]) -> None:
    assert kind_of(tiny()) != kind_of(tiny(precision="bf16"))
    assert kind_of(tiny()) != kind_of(tiny(train={"batch": 16}))
    assert kind_of(tiny()) == kind_of(tiny(seed=1))
