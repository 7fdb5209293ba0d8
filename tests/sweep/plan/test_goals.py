"""The value of a cell is the mean over seeds of its runs less those of their baselines."""

from __future__ import annotations

import math
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from tests.pretender import ended_run
from tests.sweep.plans import plan_of, tiny
from tread_lab.records.lab import Lab
from tread_lab.specs import RunSpec, UserError, decode, signature
from tread_lab.specs.cell import Trial
from tread_lab.specs.evaluation import (
    EvaluationSpec,
    HeldoutSpec,
    SamplesSpec,
    SimilaritySpec,
    at_steps,
)
from tread_lab.specs.sweep import SearchSpec, SweepSpec
from tread_lab.sweep.plan import goals
from tread_lab.sweep.plan.goals import cell_values, objectives_of

AT_END = HeldoutSpec(images=8, levels=2)
FLOPS, LOSS = "cost/train_flops", "heldout/loss"


def measured(
    lab: Lab, spec: RunSpec, baseline: str | None = None, *, flops: float = 10.0, loss: Any = None
) -> Trial:
    """A trial whose run has ended with these training FLOPs and this held-out loss."""
    folder = ended_run(lab, spec, step=20, metrics={FLOPS: flops})
    if loss is not None:
        folder.evaluation(AT_END).write(AT_END, {LOSS: loss})
    return Trial("trial", {}, spec.seed, spec, folder.name, baseline)


def test_costs_and_losses_are_less_those_of_the_baseline(lab: Lab) -> None:
    dense = [measured(lab, tiny(seed=s), loss=1.0 + s) for s in (0, 1)]
    routed = [
        measured(lab, tiny(seed=s, routes=["0->2"]), dense[s].run, flops=8.0 - s, loss=4.0)
        for s in (0, 1)
    ]
    assert cell_values(lab, routed, [LOSS, FLOPS], [AT_END]) == (2.5, -2.5)
    assert cell_values(lab, dense, [FLOPS, LOSS], [AT_END]) == (10.0, 1.5)


def test_a_cell_without_every_finite_objective_has_no_values(lab: Lab) -> None:
    infinite = measured(lab, tiny(), loss=math.inf)
    routed = measured(lab, tiny(routes=["0->2"]), infinite.run, loss=2.0)
    no_number = measured(lab, tiny(seed=3), loss=2.0)
    lab.run(no_number.run).evaluation(AT_END).write(AT_END, {}, problem="no finite number")
    unmeasured = Trial("trial", {}, 5, tiny(seed=5), lab.run_of(tiny(seed=5)).name, None)
    for trial, names, values in (
        (infinite, [FLOPS], (10.0,)),
        (infinite, [FLOPS, LOSS], None),
        (infinite, ["gap/heldout"], None),  # it has no baseline
        (routed, ["gap/heldout"], None),  # no losses an image
        (unmeasured, [FLOPS], None),
        (no_number, [LOSS], None),
    ):
        assert cell_values(lab, [trial], names, [AT_END]) == values


def test_what_is_measured_during_training_is_no_value_of_the_cell(lab: Lab) -> None:
    (early,) = at_steps((replace(AT_END, step=10),), 20)
    trial = measured(lab, tiny())
    lab.run(trial.run).evaluation(early).write(early, {LOSS: 9.0})
    with pytest.raises(UserError, match="no run measures 'heldout/loss'"):
        cell_values(lab, [trial], [LOSS], [early])
    lab.run(trial.run).evaluation(AT_END).write(AT_END, {LOSS: 1.0})
    assert cell_values(lab, [trial], [LOSS], [AT_END, early]) == (1.0,)


def objectives(
    *names: str, evaluations: tuple[EvaluationSpec, ...] = (AT_END,), **sweep: Any
) -> tuple[str, ...]:
    search, file = SearchSpec(objectives=names), SweepSpec(experiment="tiny", **sweep)
    trials = [] if file.baseline is None else [Trial("baseline", {}, 0, tiny(), "dense", None)]
    trials.append(Trial("trial", {"end": 2}, 0, tiny(routes=["1->2"]), "routed", None))
    return objectives_of(search, file, evaluations, trials)


COSTS = (
    "cost/family_flops", "cost/peak_memory_bytes", "cost/train_flops", "cost/train_seconds",
    "throughput/images_per_s", "throughput/step_seconds",
)  # fmt: skip
EARLY, LARGER = replace(AT_END, step=10), replace(AT_END, images=16)
FD = decode(SamplesSpec, {"metrics": ["fd", "kid"], "count": 1000})
BY_FILE = decode(
    SamplesSpec, {"metrics": ["fid"], "count": 500, "reference": {"name": "r", "path": "a"}}
)


@pytest.mark.parametrize(
    ("names", "evaluations", "baseline", "found"),
    [
        ((), (AT_END,), {"routes": []}, ("gap/heldout",)),
        ((), (AT_END,), None, ("heldout/loss",)),
        (("cost/train_flops", "gap/heldout"), (AT_END,), {"routes": []}, None),
        (("heldout/loss",), (AT_END, EARLY), {"routes": []}, None),
        (("cost/train_flops",), (AT_END, LARGER), {"routes": []}, None),
        (COSTS, (), {"routes": []}, None),
        (("fd@1k", "fid@500"), (FD, BY_FILE), {"routes": []}, ("fd[fashion16-v1]@1k", "fid@500")),
    ],
)
def test_an_objective_is_a_cost_or_what_one_evaluation_measures_at_the_end(
    names: tuple[str, ...], evaluations: Any, baseline: Any, found: tuple[str, ...] | None
) -> None:
    """Without any, a search minimises the gap or, without a baseline, the loss."""
    assert objectives(*names, evaluations=evaluations, baseline=baseline) == (found or names)


@pytest.mark.parametrize(
    ("axes", "objective"),
    [
        ({"rate": [0.25, 0.5]}, "gap/heldout"),
        ({"train.lr": [1e-3, 1.0]}, "heldout/loss"),
        ({"process.p_mean": [-1.2, -0.8]}, "gap/heldout"),
    ],
)
def test_search_minimises_loss_where_baselines_move(axes: Any, objective: str) -> None:
    plan = plan_of(tiny(routes=["1->2"]), "s", axes=axes, search={"trials": 2})
    assert plan.search is not None and plan.search["objectives"] == [objective]


ONE_OF = "is better than another; choose from cost/family_flops, cost/peak_memory_bytes, "


@pytest.mark.parametrize(
    ("name", "evaluations", "baseline", "said"),
    [
        ("heldout/loss", (EARLY,), {}, "no evaluation measures 'heldout/loss'"),
        ("heldout/los", (AT_END,), {}, "'heldout/los', did you mean 'heldout/loss'"),
        ("fd@2k", (FD,), {}, "no evaluation measures 'fd@2k' (known: cost/family_flops, "),
        ("gap/heldout", (AT_END,), None, "a gap needs a baseline; use heldout/loss"),
        ("gap/heldout", (FD,), {}, "no evaluation measures 'gap/heldout'"),
        ("gap/train", (AT_END,), {}, f"no value of gap/train {ONE_OF}"),
        ("heldout/loss_routed", (AT_END,), {}, "cost/train_seconds, gap/heldout, heldout/loss, t"),
        ("heldout/loss_routed", (AT_END,), None, "cost/train_seconds, heldout/loss, throughput/"),
        ("similarity/adjacent", (SimilaritySpec(images=8),), {}, f"similarity/adjacent {ONE_OF}"),
        ("heldout/loss", (AT_END, LARGER), {}, "2 evaluations measure heldout/loss; a search needs"
         " one of them: leave one"),
    ],
)  # fmt: skip
def test_an_objective_that_cannot_be_optimised_is_refused_in_one_line(
    name: str, evaluations: Any, baseline: Any, said: str
) -> None:
    baseline = None if baseline is None else {"routes": []}
    with pytest.raises(UserError, match=r"^search\.objectives: [^\n]*$") as refusal:
        objectives(name, evaluations=evaluations, baseline=baseline)
    assert said in str(refusal.value)


def test_a_gap_is_that_of_a_run_to_its_baseline_at_the_end(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
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
