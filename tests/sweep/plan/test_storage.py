"""A stored plan is the plan that is loaded, and another plan under its name is noticed."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable
from typing import Any

import pytest

from tread_lab.records.lab import Lab
from tread_lab.records.plan import StoredPlan, StoredTrial
from tread_lab.specs import RunSpec, UserError, decode, encode
from tread_lab.specs.expansion import ExcludedCells
from tread_lab.specs.sweep import Experiment, SweepSpec
from tread_lab.sweep.plan.plan import Plan, make_plan
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
    tree = {"experiment": "tiny", "axes": {"route": ["0->1", "0->2"]}, "evaluate": [], **more}
    return make_plan("p", decode(SweepSpec, tree), Experiment(name="tiny", run=encode(tiny())))


def test_a_plan_is_loaded_as_it_was_stored(lab: Lab, tiny: Tiny) -> None:
    axes = {"route": ["0->1", "0->2", "0->1"]}
    sweep = {"question": "Why?", "where": "end < 2", "evaluate": ["fd@1k"], "seeds": [3, 4]}
    plan = planned(tiny, axes=axes, **sweep)
    store_plan(lab.sweep("p"), plan)
    loaded = load_plan(lab.sweep("p"))
    for name in (
        "name",
        "question",
        "experiment",
        "trials",
        "excluded",
        "duplicates",
        "evaluations",
    ):
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


@pytest.mark.parametrize(
    ("changes", "differs"),
    [
        ({"question": "How?"}, False),
        ({"seeds": [1]}, True),
        ({"evaluate": ["fd@1k"]}, True),
        ({"axes": {"route": ["0->2", "0->1"]}}, True),
        ({"baseline": None}, True),
        ({"budget": {"trials": 1}}, False),
    ],
)
def test_runs_baselines_and_evaluations_make_a_version(
    lab: Lab, tiny: Tiny, changes: dict[str, Any], differs: bool
) -> None:
    plan, other = planned(tiny), planned(tiny, **changes)
    assert (version_of(other) != version_of(plan)) == differs
    assert is_stored(to_stored(plan), other) != differs
    store_plan(lab.sweep("p"), plan)
    if not differs:
        check_plan(lab.sweep("p"), other)
        return
    with pytest.raises(UserError, match=r"^sweep 'p' was planned with other settings: "):
        check_plan(lab.sweep("p"), other)


def test_where_a_reference_lies_makes_no_version_and_its_name_does(tiny: Tiny) -> None:
    def with_reference(**fields: str) -> Plan:
        samples = {**SAMPLES["samples"], "reference": {"name": "r", "path": "a", **fields}}
        return planned(tiny, evaluate=[{"samples": samples}])

    plan = with_reference()
    assert version_of(with_reference(path="b")) == version_of(plan)
    assert version_of(with_reference(name="s")) != version_of(plan)
    assert version_of(plan) == "1088ee211cf9c190"  # of every release
    more = {**SAMPLES["samples"], "count": 200}
    assert version_of(planned(tiny, evaluate=[{"samples": more}])) != version_of(plan)


@pytest.mark.parametrize(
    ("search", "differs"),
    [
        ({"trials": 9}, False),
        ({"seed": 5}, True),
        ({"sampler": "random"}, True),
        ({"objectives": ["cost/train_flops"]}, True),
        ({"startup": 2}, True),
    ],
)
def test_of_a_search_the_number_of_trials_may_change(
    tiny: Tiny, search: dict[str, Any], differs: bool
) -> None:
    base = {"trials": 2, "objectives": ["heldout/loss"]}
    evaluate = [{"heldout_loss": {"images": 8, "levels": 2}}]
    plan = planned(tiny, search=base, evaluate=evaluate)
    other = planned(tiny, search={**base, **search}, evaluate=evaluate)
    assert (version_of(other) != version_of(plan)) == differs
    assert is_stored(to_stored(plan), other) != differs


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


@pytest.mark.parametrize(
    ("axes", "said"),
    [
        ({"a": 1}, "axes.a was nothing, is 1"),
        ({"a": 1, "b": 2}, "axes.a was nothing, is 1; axes.b was nothing, is 2"),
        ({"a": 1, "b": 2, "c": 3}, "axes.b was nothing, is 2; 1 field more"),
        ({"a": 1, "b": 2, "c": 3, "d": 4}, "axes.b was nothing, is 2; 2 fields more"),
    ],
)
def test_two_fields_are_named_and_the_rest_counted(axes: dict[str, int], said: str) -> None:
    earlier = StoredPlan("s", "", "", (), (), {})
    later = StoredPlan("s", "", "", (), (), {"axes": axes})
    assert difference(earlier, later).endswith(said)


def test_what_a_plan_extended_and_what_it_asks_is_no_difference() -> None:
    earlier = StoredPlan("s", "", "", (), (), {"sweep": {"question": "Why?"}, "earlier": [{}]})
    later = StoredPlan("s", "", "", (), (), {"sweep": {"question": "How?"}})
    assert difference(earlier, later) == "the same trials in another order"


def kept(*trials: tuple[str, str | None], evaluate: tuple[Any, ...] = (), **sweep: Any) -> Any:
    """A plan of trials by (run, baseline); a baseline is one without."""
    made = tuple(
        StoredTrial("trial" if base else "baseline", {"route": run}, 0, {}, run, base)
        for run, base in trials
    )
    return StoredPlan("s", "", "", made, evaluate, {"sweep": sweep})


def test_new_and_gone_trials_are_counted_with_an_example_each() -> None:
    earlier = kept(("d", None), ("a", "d"), ("b", "d"))
    later = kept(("d", None), ("e", None), ("b", "d"), ("b", "e"), ("c", "d"))
    assert difference(earlier, later) == (
        "2 trials new (e.g. b s=0 seed 0), 1 trial gone (e.g. a s=0 seed 0)"
    )
    assert difference(later, kept(("d", None), ("b", "d"))) == (
        "0 trials new, 2 trials gone (e.g. b s=0 seed 0)"
    )


def test_two_evaluations_of_one_name_are_said_once() -> None:
    loss, other = ({"kind": "heldout_loss", "images": images} for images in (8, 9))
    earlier, later = (
        kept(evaluate=(loss,)),
        kept(evaluate=(other, loss, {**other, "levels": 2})),
    )
    assert difference(earlier, later) == "measures heldout_loss too"
    assert difference(later, earlier) == "no longer heldout_loss"
    assert difference(kept(evaluate=(loss,)), kept(evaluate=(other,))).count("; no longer") == 1


def test_a_long_value_is_cut_and_a_missing_one_is_nothing() -> None:
    text = "x" * 39  # 41 characters with its quotes
    assert difference(kept(a=text), kept(a="y")) == (f"sweep.a was 'xxx{'x' * 33}..., is 'y'")
    assert difference(kept(a="x" * 38), kept(a="y")) == f"sweep.a was '{'x' * 38}', is 'y'"
    assert difference(kept(a=1, b=None, c=[]), kept(b=2, c=(3,))) == (
        "sweep.a was 1, is nothing; sweep.b was nothing, is 2; 1 field more"
    )
    assert difference(kept(a=(1, 2)), kept(a=[1, 2])) == "the same trials in another order"


def test_the_run_of_a_baseline_that_becomes_a_trial_is_new() -> None:
    trial = StoredTrial("trial", {"route": "d"}, 0, {}, "d", None)
    later = StoredPlan("s", "", "", (trial,), (), {"sweep": {}})
    assert difference(kept(("d", None)), later) == "1 trial new (e.g. d s=0 seed 0), 0 trials gone"


def test_in_short_two_trials_are_named() -> None:
    trials: Any = kept(("a", "d"), ("b", "d"), ("c", "d")).trials
    assert in_short(trials) == "a s=0 seed 0; b s=0 seed 0"
    assert in_short(trials[2:]) == "c s=0 seed 0"
