"""The value of a cell is the mean over seeds of its runs less those of their baselines."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from tests.pretender import Pretender
from tests.sweep.search.test_sampler import planned
from tread_lab.records.lab import Lab
from tread_lab.records.status import RunState
from tread_lab.specs import RunSpec, UserError, decode, signature
from tread_lab.specs.evaluation import EvaluationSpec, HeldoutSpec, SamplesSpec, SimilaritySpec
from tread_lab.specs.evaluation_steps import at_steps
from tread_lab.specs.sweep import SearchSpec, SweepSpec
from tread_lab.specs.trials import Trial
from tread_lab.sweep.plan import goals
from tread_lab.sweep.plan.goals import cell_values, objectives_of


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


AT_END = HeldoutSpec(images=8, levels=2)


def measured(lab: Lab, spec: RunSpec, baseline: str | None = None, **metrics: float) -> Trial:
    """A trial whose run has ended with these training FLOPs and this held-out loss."""
    folder = lab.run_of(spec)
    folder.create(spec)
    folder.finish(RunState.COMPLETED, step=20, metrics={"cost/train_flops": metrics["flops"]})
    if "loss" in metrics:
        folder.evaluation(AT_END).write(AT_END, {"heldout/loss": metrics["loss"]})
    return Trial("trial", {}, spec.seed, spec, folder.name, baseline)


def test_costs_and_losses_are_less_those_of_the_baseline(
    lab: Lab, tiny: Callable[..., RunSpec]
) -> None:
    names = ["cost/train_flops", "heldout/loss"]
    dense = [measured(lab, tiny(seed=s), flops=10.0, loss=1.0 + s) for s in (0, 1)]
    routed = [
        measured(lab, tiny(seed=s, routes=["0->2"]), dense[s].run, flops=8.0 - s, loss=4.0)
        for s in (0, 1)
    ]
    assert cell_values(lab, routed, names, [AT_END]) == (-2.5, 2.5)
    assert cell_values(lab, dense, names, [AT_END]) == (10.0, 1.5)


def test_a_gap_without_records_or_without_baseline_is_no_value(
    lab: Lab, tiny: Callable[..., RunSpec]
) -> None:
    dense = measured(lab, tiny(), flops=10.0, loss=1.0)
    routed = measured(lab, tiny(routes=["0->2"]), dense.run, flops=8.0, loss=2.0)
    assert cell_values(lab, [dense], ["gap/heldout"], [AT_END]) is None
    assert cell_values(lab, [routed], ["gap/heldout"], [AT_END]) is None  # no losses an image
    unmeasured = Trial("trial", {}, 5, tiny(seed=5), lab.run_of(tiny(seed=5)).name, None)
    assert cell_values(lab, [unmeasured], ["cost/train_flops"], [AT_END]) is None


def test_what_is_measured_during_training_is_no_value_of_the_cell(
    lab: Lab, tiny: Callable[..., RunSpec]
) -> None:
    spec = tiny()
    (early,) = at_steps((replace(AT_END, step=10),), 20)
    trial = measured(lab, spec, flops=10.0)
    lab.run(trial.run).evaluation(early).write(early, {"heldout/loss": 9.0})
    with pytest.raises(UserError, match="no run measures 'heldout/loss'"):
        cell_values(lab, [trial], ["heldout/loss"], [early])
    lab.run(trial.run).evaluation(AT_END).write(AT_END, {"heldout/loss": 1.0})
    assert cell_values(lab, [trial], ["heldout/loss"], [AT_END, early]) == (1.0,)


def objectives(
    *names: str, evaluations: tuple[EvaluationSpec, ...] = (AT_END,), **sweep: Any
) -> tuple[str, ...]:
    search = SearchSpec(objectives=names)
    return objectives_of(search, SweepSpec(experiment="tiny", **sweep), evaluations, {"fashion16"})


def test_a_search_minimises_the_gap_or_without_baseline_the_loss() -> None:
    assert objectives() == ("gap/heldout",)
    assert objectives(baseline=None) == ("heldout/loss",)
    assert objectives("cost/train_flops", "gap/heldout") == ("cost/train_flops", "gap/heldout")
    with pytest.raises(UserError, match="objectives: a gap needs a baseline; use heldout/loss"):
        objectives("gap/heldout", baseline=None)


def test_what_is_measured_at_a_step_alone_is_no_objective() -> None:
    with pytest.raises(UserError, match="no evaluation measures 'heldout/loss'"):
        objectives("heldout/loss", evaluations=(replace(AT_END, step=10),))
    both = (AT_END, replace(AT_END, step=10))
    assert objectives("heldout/loss", evaluations=both) == ("heldout/loss",)


COSTS = (
    "cost/family_flops, cost/peak_memory_bytes, cost/train_flops, cost/train_seconds,"
    " %sheldout/loss, throughput/images_per_s, throughput/step_seconds"
)


def test_every_cost_of_a_run_may_be_an_objective() -> None:
    names = (
        "cost/train_flops", "cost/family_flops", "cost/train_seconds", "throughput/step_seconds",
        "throughput/images_per_s", "cost/peak_memory_bytes",
    )  # fmt: skip
    assert objectives(*names, evaluations=()) == names


@pytest.mark.parametrize(
    ("name", "baseline", "gaps"),
    [
        ("heldout/loss_routed", {"routes": []}, "gap/heldout, "),
        ("gap/train", {"routes": []}, "gap/heldout, "),
        ("gap/route", {"routes": []}, "gap/heldout, "),
        ("heldout/loss_routed", None, ""),
    ],
)
def test_a_metric_of_which_no_value_is_better_is_no_objective(
    name: str, baseline: Any, gaps: str
) -> None:
    with pytest.raises(UserError) as refusal:
        objectives(name, baseline=baseline)
    assert str(refusal.value) == (
        f"search.objectives: no value of {name} is better than another; choose from {COSTS % gaps}"
    )


def test_a_metric_without_better_values_is_known_by_its_evaluation() -> None:
    with pytest.raises(UserError, match="no value of similarity/adjacent is better than another"):
        objectives("similarity/adjacent", evaluations=(SimilaritySpec(images=8),))


def test_what_two_evaluations_measure_is_no_objective() -> None:
    both = (AT_END, replace(AT_END, images=16))
    with pytest.raises(UserError) as refusal:
        objectives("heldout/loss", evaluations=both)
    assert str(refusal.value) == (
        "search.objectives: 2 evaluations measure heldout/loss; a search needs one of them:"
        " leave one"
    )
    assert objectives("cost/train_flops", evaluations=both) == ("cost/train_flops",)


def test_a_metric_of_samples_has_a_short_name() -> None:
    samples = decode(SamplesSpec, {"metrics": ["fd", "kid"], "count": 1000})
    by_file = decode(
        SamplesSpec, {"metrics": ["fid"], "count": 500, "reference": {"name": "r", "path": "a"}}
    )
    found = objectives("fd@1k", "fid@500", evaluations=(samples, by_file))
    assert found == ("fd[fashion16-v1]@1k", "fid@500")
    with pytest.raises(UserError, match=r"no evaluation measures 'fd@2k' \(known: cost/family_fl"):
        objectives("fd@2k", evaluations=(samples,))


def test_a_gap_is_that_of_a_run_to_its_baseline_at_the_end(
    lab: Lab, tiny: Callable[..., RunSpec], monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[Any] = []

    def run_gaps(*runs: Any, planned: Any = ()) -> dict[str, Any]:
        asked.append((*runs, planned))
        return {"gap/heldout": SimpleNamespace(mean=float(len(asked)))}

    monkeypatch.setattr(goals, "run_gaps", run_gaps)
    trials = [Trial("trial", {}, s, tiny(seed=s), f"run{s}", f"dense{s}") for s in (0, 1)]
    early = replace(AT_END, step=10)
    assert cell_values(lab, trials, ["gap/heldout"], [early, AT_END]) == (1.5,)
    planned = [signature(AT_END)]
    assert asked == [(lab, "run0", "dense0", planned), (lab, "run1", "dense1", planned)]
    assert cell_values(lab, trials, ["gap/train"], [AT_END]) is None


def test_a_cost_is_known_before_a_run_is_measured(lab: Lab, tiny: Callable[..., RunSpec]) -> None:
    trial = measured(lab, tiny(), flops=10.0)
    assert cell_values(lab, [trial], ["cost/train_flops"], [AT_END]) == (10.0,)
