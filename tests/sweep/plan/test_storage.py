"""A stored plan is the plan that is loaded, and another plan under its name is noticed."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import pytest

from tests.sweep.plans import HELDOUT, plan_of
from tread_lab.records.lab import Lab
from tread_lab.records.plan import StoredPlan
from tread_lab.specs import RunSpec, UserError
from tread_lab.specs.cell import Trial
from tread_lab.specs.expansion import ExcludedCells
from tread_lab.sweep.plan.plan import Plan
from tread_lab.sweep.plan.storage import (
    check_plan,
    difference,
    in_short,
    is_stored,
    load_plan,
    store_plan,
    to_stored,
    version_of,
    versions,
)

Tiny = Callable[..., RunSpec]
SAMPLES = {"samples": {"metrics": ["fd"], "count": 100, "reference": {"name": "r", "path": "a"}}}


def planned(tiny: Tiny, **more: Any) -> Plan:
    return plan_of(tiny(), "p", **{"axes": {"route": ["0->1", "0->2"]}, "evaluate": [], **more})


def test_a_plan_is_loaded_as_it_was_stored(lab: Lab, tiny: Tiny) -> None:
    axes = {"route": ["0->1", "0->2", "0->1"]}
    sweep = {"question": "Why?", "where": "end < 2", "evaluate": ["fd@1k"], "seeds": [3, 4]}
    plan = planned(tiny, axes=axes, **sweep)
    store_plan(lab.sweep("p"), plan)
    loaded = load_plan(lab.sweep("p"))
    names = "name question experiment trials excluded duplicates evaluations"
    for name in names.split():
        assert getattr(loaded, name) == getattr(plan, name), name
    assert loaded.excluded == (ExcludedCells("where: end < 2", 1, ({"route": "0->2"},)),)
    assert loaded.sources == json.loads(json.dumps(plan.sources))
    assert loaded.versions == (version_of(plan),) and len(version_of(plan)) == 16
    assert loaded.duplicates == (ExcludedCells("written again", 1, ({"route": "0->1"},)),)
    assert version_of(plan) == "4ac6a9d3a384699c"  # of every release
    assert is_stored(lab.sweep("p").plan(), plan) and is_stored(lab.sweep("p").plan(), loaded)


def test_when_it_was_stored_first_and_again_stays_on_record(
    lab: Lab, tiny: Tiny, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, plan = lab.sweep("p"), planned(tiny)
    for now in (100.0, 200.0, 300.0):
        monkeypatch.setattr("time.time", lambda now=now: now)
        store_plan(folder, plan)
        plan = dataclasses.replace(
            plan, question="again", versions=(*versions(folder.plan()), f"v{now:.0f}")
        )
    stored = folder.plan()
    assert (stored.created, stored.extended) == (100.0, (200.0, 300.0))
    assert stored.versions[1:] == ("v100", "v200") and len(folder.earlier_plans) == 2


def test_the_same_plan_is_not_written_again(lab: Lab, tiny: Tiny) -> None:
    folder = lab.sweep("p")
    store_plan(folder, planned(tiny))
    text = folder.plan_path.read_text()
    store_plan(folder, planned(tiny, question="Another question?"))
    store_plan(folder, load_plan(folder))
    assert folder.plan_path.read_text() == text and folder.earlier_plans == []


def test_a_loaded_search_is_stored_as_it_is(lab: Lab, tiny: Tiny) -> None:
    search = {"trials": 2, "objectives": ["cost/train_flops"]}
    store_plan(lab.sweep("p"), planned(tiny, search=search))
    text = lab.sweep("p").plan_path.read_text()
    store_plan(lab.sweep("p"), load_plan(lab.sweep("p")))
    assert lab.sweep("p").plan_path.read_text() == text


def images(**fields: Any) -> dict[str, Any]:
    samples = {**SAMPLES["samples"], **fields.pop("samples", {})}
    return {
        "evaluate": [{"samples": {**samples, "reference": {"name": "r", "path": "a", **fields}}}]
    }


def searched(**fields: Any) -> dict[str, Any]:
    search = {"trials": 2, "objectives": ["heldout/loss"], **fields}
    return {"search": search, "evaluate": [HELDOUT]}


@pytest.mark.parametrize(
    ("sweep", "changes", "differs"),
    [
        ({}, {"question": "How?"}, False),
        ({}, {"budget": {"trials": 1}}, False),
        ({}, {"seeds": [1]}, True),
        ({}, {"evaluate": ["fd@1k"]}, True),
        ({}, {"axes": {"route": ["0->2", "0->1"]}}, True),
        ({}, {"baseline": None}, True),
        (images(), images(path="b"), False),
        (images(), images(name="s"), True),
        (images(), images(samples={"count": 200}), True),
        (searched(), searched(trials=9), False),
        (searched(), searched(seed=5), True),
        (searched(), searched(sampler="random"), True),
        (searched(), searched(objectives=["cost/train_flops"]), True),
        (searched(), searched(startup=2), True),
    ],
)
def test_what_is_run_measured_and_searched_makes_a_version(
    lab: Lab, tiny: Tiny, sweep: dict[str, Any], changes: dict[str, Any], differs: bool
) -> None:
    plan, other = planned(tiny, **sweep), planned(tiny, **{**sweep, **changes})
    assert (version_of(other) != version_of(plan)) == differs
    assert is_stored(to_stored(plan), other) != differs
    store_plan(lab.sweep("p"), plan)
    with (
        pytest.raises(UserError, match=r"^sweep 'p' was planned with other settings: ")
        if differs
        else nullcontext()
    ):
        check_plan(lab.sweep("p"), other)
    assert sweep != images() or version_of(plan) == "1088ee211cf9c190"  # of every release


def test_the_space_of_a_search_is_stored_and_checked(tiny: Tiny) -> None:
    def searched(*routes: str) -> Plan:
        search, evaluate = {"trials": 2, "objectives": ["heldout/loss"]}, ["heldout_loss"]
        return planned(tiny, axes={"route": [*routes]}, search=search, evaluate=evaluate)

    stored = to_stored(searched("0->1", "0->2"))
    assert stored.space == ({"route": "0->1"}, {"route": "0->2"}) and stored.search is not None
    assert stored.search["objectives"] == ["heldout/loss"] and "trials" not in stored.search
    earlier = {k: v for k, v in stored.search["space"].items() if k != "runs"}
    assert earlier == {"cells": 2, "checksum": "327af7ee"}  # of every release
    of_release = dataclasses.replace(stored, search={**stored.search, "space": earlier})
    assert is_stored(of_release, searched("0->1", "0->2"))
    other_runs = {**stored.search, "space": {**earlier, "runs": "00000000"}}
    assert not is_stored(dataclasses.replace(stored, search=other_runs), searched("0->1", "0->2"))
    assert not is_stored(stored, searched("0->1", "0->3"))
    assert not is_stored(stored, searched("0->1"))
    assert not is_stored(stored, searched("0->2", "0->1"))  # cells are numbered in their order
    assert to_stored(planned(tiny)).space == () and to_stored(planned(tiny)).search is None


def test_an_objective_stored_under_its_earlier_name_is_the_same(tiny: Tiny) -> None:
    """Versions before 0.3 called a distance to held-out images `fid@100`."""
    search, evaluate = {"trials": 2, "objectives": ["fid@100"]}, ["fid@100"]
    plan = planned(tiny, search=search, evaluate=evaluate)
    stored = to_stored(plan)
    assert stored.search is not None and stored.search["objectives"] == ["fid[heldout]@100"]
    earlier = dataclasses.replace(stored, search={**stored.search, "objectives": ["fid@100"]})
    assert is_stored(earlier, plan)
    by_file = tuple({**tree, "reference": {"name": "r", "path": "a"}} for tree in stored.evaluate)
    renamed = dataclasses.replace(earlier, evaluate=(*stored.evaluate, *by_file))
    assert not is_stored(renamed, plan)


def test_an_objective_by_a_file_of_references_keeps_its_name(tiny: Tiny) -> None:
    search = {"trials": 2, "objectives": ["fid@100"]}
    by_file = {"samples": {**SAMPLES["samples"], "metrics": ["fid"]}}
    plan = planned(tiny, search=search, evaluate=["heldout_loss", by_file])
    stored = to_stored(plan)
    assert stored.search is not None and stored.search["objectives"] == ["fid@100"]
    assert is_stored(stored, plan)


def kept(*trials: tuple[str, str | None], evaluate: tuple[Any, ...] = (), **sweep: Any) -> Any:
    """A plan of trials by (run, baseline); a baseline is one without."""
    made = tuple(
        Trial("trial" if base else "baseline", {"route": run}, 0, {}, run, base)
        for run, base in trials
    )
    return StoredPlan("s", "", "", made, evaluate, {"sweep": sweep})


D, A, B = ("d", None), ("a", "d"), ("b", "d")
LOSS, OTHER = ({"kind": "heldout_loss", "images": count} for count in (8, 9))


@pytest.mark.parametrize(
    ("earlier", "later", "said"),
    [
        (kept(), kept(a=1), "sweep.a was nothing, is 1"),
        (kept(), kept(a=1, b=2), "sweep.a was nothing, is 1; sweep.b was nothing, is 2"),
        (kept(), kept(a=1, b=2, c=3), "sweep.b was nothing, is 2; 1 field more"),
        (kept(), kept(a=1, b=2, c=3, d=4), "sweep.b was nothing, is 2; 2 fields more"),
        (kept(a=1, b=None, c=[]), kept(b=2, c=(3,)),
         "sweep.a was 1, is nothing; sweep.b was nothing, is 2; 1 field more"),
        (kept(question="Why?"), kept(question="How?"), "the same trials in another order"),
        (kept(a=(1, 2)), kept(a=[1, 2]), "the same trials in another order"),
        (kept(a="x" * 39), kept(a="y"), f"sweep.a was 'xxx{'x' * 33}..., is 'y'"),
        (kept(a="x" * 38), kept(a="y"), f"sweep.a was '{'x' * 38}', is 'y'"),
        (kept(D, A, B), kept(D, ("e", None), B, ("b", "e"), ("c", "d")),
         "2 trials new (e.g. b s=0 seed 0), 1 trial gone (e.g. a s=0 seed 0)"),
        (kept(D, A, B), kept(D, A), "0 trials new, 1 trial gone (e.g. b s=0 seed 0)"),
        (kept(evaluate=(LOSS,)), kept(evaluate=(OTHER, LOSS, {**OTHER, "levels": 2})),
         "measures heldout_loss too"),
        (kept(evaluate=(LOSS, OTHER)), kept(evaluate=(LOSS,)), "no longer heldout_loss"),
        (kept(evaluate=(LOSS,)), kept(evaluate=(OTHER,)),
         "measures heldout_loss too; no longer heldout_loss"),
        (kept(D), StoredPlan("s", "", "", (Trial("trial", {"route": "d"}, 0, {}, "d", None),),
                             (), {"sweep": {}}),  # the run of a baseline becomes a trial
         "1 trial new (e.g. d s=0 seed 0), 0 trials gone"),
    ],
)  # fmt: skip
def test_a_difference_names_two_fields_and_counts_trials_with_an_example_each(
    earlier: Any, later: Any, said: str
) -> None:
    assert difference(earlier, later).endswith(said)
    assert in_short(kept(A, B, ("c", "d")).trials) == "a s=0 seed 0; b s=0 seed 0"
