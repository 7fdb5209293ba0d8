"""Objectives of a search are costs, or what one evaluation measures at the end."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from tests.sweep.plans import plan_of, tiny
from tread_lab.config import UserError, decode
from tread_lab.config.cell import Trial
from tread_lab.config.evaluation import EvaluationSpec, HeldoutSpec, SamplesSpec
from tread_lab.config.sweep import SearchSpec, SweepSpec
from tread_lab.sweep.plan import objectives_of

AT_END = HeldoutSpec(images=8, levels=2)


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
def test_objective_is_a_cost_or_end_metric(
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


@pytest.mark.parametrize(
    ("name", "evaluations", "baseline", "said"),
    [
        ("heldout/los", (AT_END,), {}, "got 'heldout/los', did you mean 'heldout/loss'"),
        ("heldout/loss", (EARLY,), {}, "got 'heldout/loss'"),
        ("fd@2k", (FD,), {}, "got 'fd@2k' (known: cost/family_flops, "),
        ("gap/heldout", (AT_END,), None, "a gap also requires a baseline"),
        ("gap/train", (AT_END,), {}, "that the sweep measures at the end"),
        ("heldout/loss", (AT_END, LARGER), {}, "must be of one evaluation, got 2"),
    ],
)
def test_impossible_objective_is_one_line(
    name: str, evaluations: Any, baseline: Any, said: str
) -> None:
    baseline = None if baseline is None else {"routes": []}
    with pytest.raises(UserError, match=r"^search\.objectives: [^\n]*$") as refusal:
        objectives(name, evaluations=evaluations, baseline=baseline)
    assert said in str(refusal.value)
