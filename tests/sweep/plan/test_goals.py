"""The value of a cell is the mean over seeds of its runs less those of their baselines."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

import pytest

from tests.pretender import Pretender
from tests.sweep.search.test_sampler import planned
from tread_lab.records.lab import Lab
from tread_lab.records.status import RunState
from tread_lab.specs import RunSpec
from tread_lab.sweep.plan.goals import cell_values


def test_a_value_is_a_mean_of_paired_differences(lab: Lab, tiny: Callable[..., RunSpec]) -> None:
    plan = planned(tiny)
    assert plan.search is not None
    runs = plan.search.trials_of({"start": 2, "end": 4})
    Pretender(lab).run(plan.tasks_of(runs))
    trials = [trial for trial in runs if trial.role == "trial"]
    assert [trial.seed for trial in trials] == [0, 1]
    objectives = ["heldout/loss", "cost/train_flops"]
    loss, flops = cell_values(lab, trials, objectives, plan.evaluations) or ()
    assert loss == pytest.approx((1.010 - 1 + 1.011 - 1) / 2) and flops == 0.0


def test_a_cell_with_one_infinite_objective_has_no_values(
    lab: Lab, tiny: Callable[..., RunSpec]
) -> None:
    task = planned(tiny).tasks[0]
    trial = replace(planned(tiny).trials[0], role="trial", baseline=None)
    folder = lab.run(task.run)
    folder.create(task.spec)
    metrics = {"cost/train_flops": 1.0, "heldout/loss": math.inf}
    folder.finish(RunState.COMPLETED, step=20, metrics=metrics)
    assert cell_values(lab, [trial], ["cost/train_flops"], ()) == (1.0,)
    assert cell_values(lab, [trial], ["cost/train_flops", "heldout/loss"], ()) is None
