"""The tasks of a plan: each run once, and what is open, or compared among them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from tests.sweep.plans import plan_of, tiny
from tread_lab.config import UserError, decode
from tread_lab.config.evaluation import EvaluationSpec, HeldoutSpec, SamplesSpec
from tread_lab.config.labels import Trial
from tread_lab.config.sweep import SearchSpec, SweepSpec
from tread_lab.cost.training import cost
from tread_lab.sweep.plan import (
    Plan,
    objectives_of,
    plan_with_costs,
)

THEN = {"routes": [], "train": {"steps": 4, "warmup": 0}}


def planned(**more: Any) -> Plan:
    return plan_of(tiny(), "p", **{"axes": {"route": ["0->1", "0->2"]}, "seeds": [0, 1], **more})


def routes(tasks: Any) -> list[str]:
    return [str(task.spec.routes[0]) if task.spec.routes else "dense" for task in tasks]


MATCHED = {
    "routes": [{"routes": [f"0->1 by {kind}"]} for kind in ("random", "rows", "structured")]
    + [{"routes": ["0->2 by bernoulli"]}, {"routes": ["0->0", "1->2"]}, {"routes": []}],
    "rates": [{"routes": [{"start": 0, "end": 2, "rate": s}]} for s in (0, 0.1, 0.25, 0.9)],
    "bypasses": [
        {"routes": ["0->B-1"], "bypass": "mask"},
        {"routes": ["0->B-1"], "bypass": "mask", "loss": "discrimination"},
        {"routes": ["0->1"], "bypass": "mdt"},
        {"routes": ["0->1"], "bypass": "sprint", "routes_until": 0.8},
    ],
    "losses": [{"routes": ["0->1"], "loss": loss} for loss in ("plain", "ensemble", "both")],
    "repa": [{"routes": ["0->1"], "repa": {"encoder": "dinov2-base", "block": 1}}],
    "phases": [
        {"routes": ["0->2"], "routes_from": 0.3},
        {"routes": ["0->2"], "routes_from": 100, "routes_until": 0.9},
    ],
    "precisions": [{"routes": ["0->2"], "precision": p} for p in ("fp32", "tf32", "bf16", "fp16")],
}


@pytest.mark.parametrize("trials", MATCHED.values(), ids=MATCHED)
def test_matched_trials_spend_baseline_flops(
    trials: list[dict[str, Any]],
) -> None:
    more = {"baseline": {"routes": [], "repa": None}, "match": "train_flops", "evaluate": []}
    for fields in trials:
        plan = planned(axes={"spend": [1, 4000]}, fixed=fields, **more)
        specs = {trial.run: trial.spec for trial in plan.trials}
        for trial in (trial for trial in plan.trials if trial.baseline):
            dense = specs[str(trial.baseline)]
            step = cost(replace(trial.spec, train=replace(trial.spec.train, steps=1))).train_flops
            assert abs(cost(trial.spec).train_flops - cost(dense).train_flops) <= step


def test_parents_are_counted_apart() -> None:
    plan = planned(axes={}, baseline=None, variants={"f": {"a": {"then": THEN}}})
    assert (len(plan.trials), len(plan.tasks)) == (2, 4)
    assert plan_with_costs(plan)["counts"]["parents"] == plan.parents == 2
    assert [task.evaluations == () for task in plan.tasks] == [True, False, True, False]


AT_END = HeldoutSpec(images=8, levels=2)


def objectives(
    *names: str, evaluations: tuple[EvaluationSpec, ...] = (AT_END,), **sweep: Any
) -> tuple[str, ...]:
    search, file = SearchSpec(objectives=names), SweepSpec(experiment="tiny", **sweep)
    trials = [] if file.baseline is None else [Trial("baseline", {}, 0, tiny(), "dense", None)]
    trials.append(Trial("trial", {"end": 2}, 0, tiny(routes=["1->2"]), "routed", None))
    return objectives_of(search, file, evaluations, trials)


EARLY, LARGER = replace(AT_END, step=10), replace(AT_END, images=16)
FD = decode(SamplesSpec, {"metrics": ["fd", "kid"], "count": 1000})


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
        ("heldout/loss", (AT_END, LARGER), {}, "must come from one evaluation, got 2"),
    ],
)
def test_impossible_objective_is_one_line(
    name: str, evaluations: Any, baseline: Any, said: str
) -> None:
    baseline = None if baseline is None else {"routes": []}
    with pytest.raises(UserError, match=r"^search\.objectives: [^\n]*$") as refusal:
        objectives(name, evaluations=evaluations, baseline=baseline)
    assert said in str(refusal.value)
