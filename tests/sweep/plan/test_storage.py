"""A stored plan is the plan that is loaded, and another plan under its name is noticed."""

from __future__ import annotations

import dataclasses
import json
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest

from tests.sweep.plans import HELDOUT, plan_of, tiny
from tread_lab.config.load import load_experiment
from tread_lab.records.lab import Lab
from tread_lab.records.plan import StoredPlan
from tread_lab.records.sweep_folder import SweepFolder
from tread_lab.specs import HeldoutSpec, UserError, decode, encode
from tread_lab.specs.cell import Trial
from tread_lab.specs.expansion import ExcludedCells
from tread_lab.specs.sweep import Experiment, SweepSpec
from tread_lab.sweep.plan.plan import Plan, make_plan
from tread_lab.sweep.plan.storage import (
    difference,
    extended,
    in_short,
    is_stored,
    load_plan,
    plan_to_run,
    store_plan,
    version_of,
    what_is_added,
)

SAMPLES = {"samples": {"metrics": ["fd"], "count": 100, "reference": {"name": "r", "path": "a"}}}


def planned(**more: Any) -> Plan:
    return plan_of(tiny(), "p", **{"axes": {"route": ["0->1", "0->2"]}, "evaluate": [], **more})


def test_a_plan_is_loaded_as_it_was_stored(lab: Lab) -> None:
    axes = {"route": ["0->1", "0->2", "0->1"]}
    sweep = {"question": "Why?", "where": "end < 2", "evaluate": ["fd@1k"], "seeds": [3, 4]}
    plan = planned(axes=axes, **sweep)
    store_plan(lab.sweep("p"), plan)
    stored = lab.sweep("p").plan()
    loaded = load_plan(lab.sweep("p"))
    assert lab.sweep("p").plan_path.read_text() == stored.text()
    assert loaded.trials == plan.trials and loaded.evaluations == plan.evaluations
    assert (loaded.name, loaded.question, loaded.experiment) == ("p", "Why?", "tiny")
    assert loaded.excluded == (ExcludedCells("where: end < 2", 1, ({"route": "0->2"},)),)
    assert loaded.sources == json.loads(json.dumps(plan.sources))
    assert loaded.versions == (version_of(plan),) and len(version_of(plan)) == 16
    assert loaded.duplicates == (ExcludedCells("written again", 1, ({"route": "0->1"},)),)
    assert is_stored(lab.sweep("p").plan(), plan) and is_stored(lab.sweep("p").plan(), loaded)


def test_a_plan_of_several_baselines_is_one_text_however_it_is_made(lab: Lab) -> None:
    plan = planned(axes={"route": ["0->1", "0->2"], "train.lr": [1e-3, 2e-3]})
    store_plan(lab.sweep("p"), plan)
    stored = lab.sweep("p").plan()
    of_file = json.loads(lab.sweep("p").plan_path.read_text())["trials"]
    assert len(stored.baselines) == 2 and stored.tree()["trials"] == of_file


@pytest.mark.parametrize("search", [None, {"trials": 2, "objectives": ["cost/train_flops"]}])
def test_the_same_plan_is_not_written_again(lab: Lab, search: Any) -> None:
    folder = lab.sweep("p")
    store_plan(folder, planned(search=search))
    text = folder.plan_path.read_text()
    store_plan(folder, planned(search=search, question="Another question?"))
    store_plan(folder, load_plan(folder))
    assert folder.plan_path.read_text() == text
    if search is not None:  # whose number of cells may change, and pages say how many are to come
        store_plan(folder, planned(search={**search, "trials": 7}))
        assert folder.plan().wanted == 7


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
        (searched(), searched(objectives=["cost/train_flops"]), True),
        ({**searched(), "baseline": None}, {"seeds": [0, 1]}, True),
    ],
)
def test_what_is_run_measured_and_searched_makes_a_version(
    lab: Lab, sweep: dict[str, Any], changes: dict[str, Any], differs: bool
) -> None:
    plan, other = planned(**sweep), planned(**{**sweep, **changes})
    assert (version_of(other) != version_of(plan)) == differs
    store_plan(lab.sweep("p"), plan)
    assert is_stored(lab.sweep("p").plan(), other) != differs
    with (
        pytest.raises(UserError, match=r"^sweep 'p' was planned with other settings: ")
        if differs
        else nullcontext()
    ):
        plan_to_run(lab.sweep("p"), other)
    assert differs or plan_to_run(lab.sweep("p"), other) is other


def test_the_space_of_a_search_is_stored_and_checked() -> None:
    def searched(*routes: str) -> Plan:
        search, evaluate = {"trials": 1, "objectives": ["heldout/loss"]}, ["heldout_loss"]
        return planned(axes={"route": [*routes]}, search=search, evaluate=evaluate)

    stored = searched("0->1", "0->2")
    assert stored.space == ({"route": "0->1"}, {"route": "0->2"}) and stored.search is not None
    assert stored.search["objectives"] == ["heldout/loss"] and "trials" not in stored.search
    space = stored.search["space"]
    assert (space["cells"], space["checksum"]) == (2, "327af7ee")
    assert is_stored(stored, searched("0->1", "0->2"))
    other_runs = {**stored.search, "space": {**space, "runs": "00000000"}}
    assert not is_stored(dataclasses.replace(stored, search=other_runs), searched("0->1", "0->2"))
    assert not is_stored(stored, searched("0->1", "0->3"))
    assert not is_stored(stored, searched("0->1"))
    assert not is_stored(stored, searched("0->2", "0->1"))  # cells are numbered in their order
    assert planned().space == () and planned().search is None


def kept(*trials: tuple[str, str | None], evaluate: tuple[Any, ...] = (), **sweep: Any) -> Any:
    """A plan of trials by (run, baseline); a baseline is one without."""
    made = tuple(
        Trial("trial" if base else "baseline", {"route": run}, 0, {}, run, base)
        for run, base in trials
    )
    return StoredPlan("s", "", "", made, evaluate, {"sweep": sweep})


D, A, B = ("d", None), ("a", "d"), ("b", "d")
LOSS, OTHER = (encode(HeldoutSpec(images=count)) for count in (8, 9))


@pytest.mark.parametrize(
    ("earlier", "later", "said"),
    [
        (kept(), kept(a=1, b=2), "sweep.a was nothing, is 1; sweep.b was nothing, is 2"),
        (kept(), kept(a=1, b=2, c=3, d=4), "sweep.b was nothing, is 2; 2 fields more"),
        (kept(a=1, b=None, c=[]), kept(b=2, c=(3,)),
         "sweep.a was 1, is nothing; sweep.b was nothing, is 2; 1 field more"),
        (kept(question="Why?"), kept(question="How?"), "the same trials in another order"),
        (kept(a=(1, 2)), kept(a=[1, 2]), "the same trials in another order"),
        (kept(), StoredPlan("s", "", "", (), (), {"earlier": [{"a": 1}], "data": {"d": "path"}}),
         "the same trials in another order"),
        (kept(a="x" * 39), kept(a="y"), f"sweep.a was 'xxx{'x' * 33}..., is 'y'"),
        (kept(D, A, B), kept(D, ("e", None), B, ("b", "e"), ("c", "d")),
         "2 trials new (e.g. b s=0 seed 0), 1 trial gone (e.g. a s=0 seed 0)"),
        (kept(evaluate=(LOSS,)), kept(evaluate=(OTHER, {**OTHER, "levels": 2})),
         "measures heldout_loss, heldout_loss levels=2 too; no longer heldout_loss"),
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


FIRST: dict[str, Any] = {"axes": {"route": ["2->8"], "rate": [0.25, 0.5]}, "evaluate": ["fd@1k"]}
WIDER = {**FIRST, "axes": {"route": ["2->8"], "rate": [0.25, 0.5, 0.75]}}
OTHER = {**FIRST, "axes": {"route": ["2->8"], "rate": [0.75]}}


def edited(sweep: dict[str, Any]) -> Plan:
    spec = decode(SweepSpec, {"experiment": "tiny", **sweep})
    return make_plan("s", spec, load_experiment("tiny"))


@pytest.fixture
def folder(tmp_path: Path) -> SweepFolder:
    folder = Lab(tmp_path).sweep("s")
    store_plan(folder, edited(FIRST))
    return folder


def rates(found: Plan) -> list[Any]:
    return [trial.cell.get("rate", trial.role) for trial in found.trials]


def test_an_edited_file_is_refused_in_one_line_that_says_what_differs(folder: SweepFolder) -> None:
    text, later = folder.plan_path.read_bytes(), edited({**FIRST, "fixed": {"train": {"steps": 9}}})
    said = (
        "sweep.fixed.train.steps was nothing, is 9; 2 trials new .* 2 trials gone .*--extend .*--n"
    )
    for refuse in (plan_to_run, store_plan):
        with pytest.raises(UserError, match=rf"^sweep 's' was planned with other settings: {said}"):
            refuse(folder, later)
    assert folder.plan_path.read_bytes() == text


def test_how_a_run_is_carried_out_and_where_its_fields_are_written_is_no_other_base(
    folder: SweepFolder,
) -> None:
    fixed = {**load_experiment("tiny").run, "execution": {"log_every": 3}}
    spec = decode(SweepSpec, {"experiment": None, "fixed": fixed, **WIDER, "evaluate": []})
    same = make_plan("s", spec, Experiment(name="s", run={}))
    assert rates(plan_to_run(folder, same, extend=True)) == ["baseline", 0.25, 0.5, 0.75]


def test_extending_adds_what_is_new_and_keeps_what_was_planned(folder: SweepFolder) -> None:
    before, created = load_plan(folder), folder.plan().created
    both = plan_to_run(folder, edited(OTHER), extend=True)
    assert rates(both) == ["baseline", 0.25, 0.5, 0.75]
    assert both.trials[:3] == before.trials and both.evaluations == before.evaluations
    assert "1 trial (2->8 s=0.75 seed 0)" in what_is_added(before, both)
    store_plan(folder, both)
    assert rates(load_plan(folder)) == rates(both)
    stored = folder.plan()
    assert stored.created == created and len(stored.extended) == 1


def test_afterwards_the_edited_file_and_the_first_one_are_both_the_extended_sweep(
    folder: SweepFolder,
) -> None:
    store_plan(folder, plan_to_run(folder, edited(OTHER), extend=True))
    for sweep in (FIRST, OTHER):
        again = plan_to_run(folder, edited(sweep))
        assert rates(again) == ["baseline", 0.25, 0.5, 0.75]
        store_plan(folder, again)
    for sweep in (FIRST, OTHER, WIDER):  # the third one plans the same trials as both
        plan_to_run(folder, edited(sweep))
    assert plan_to_run(folder, edited(OTHER), extend=True).trials == load_plan(folder).trials
    assert len(folder.plan().extended) == 1
    with pytest.raises(UserError, match="planned with other settings"):
        plan_to_run(folder, edited({**FIRST, "seeds": [0, 1]}))
    more = plan_to_run(folder, edited({**FIRST, "seeds": [0, 1]}), extend=True)
    store_plan(folder, more)
    assert len(more.trials) == 4 + 3
    assert len(folder.plan().extended) == 2
    assert [trial.role for trial in more.trials[:2]] == ["baseline", "baseline"]
    added = what_is_added(again, more)
    assert added.startswith("adds 2 trials (2->8 s=0.25 seed 1; ")
    assert added.endswith("), 1 baseline; 4 trials as before")


def set_of(**fields: Any) -> dict[str, Any]:
    reference = {"name": "r", "path": "a"}
    return {"samples": {"metrics": ["fd"], "count": 1000, "reference": reference, **fields}}


BOTH = {"metrics": ["fd", "kid"]}


@pytest.mark.parametrize(
    ("stored", "wanted", "metrics"),
    [
        (["fd@1k"], ["fd@1k", "kid@1k", "fd@2k"], ["fd", "kid", "fd"]),
        (["heldout_loss"], ["fd@1k"], ["heldout_loss", "fd"]),
        (["heldout_loss"], ["heldout_loss"], ["heldout_loss"]),
        (["fd@1k"], ["fd@1k", {"samples": {"metrics": [], "count": 64}}], ["fd", ""]),
        ([set_of()], [set_of(sampler={"steps": 20})], ["fd", "fd"]),
        ([set_of()], [set_of(**BOTH)], ["fd", "kid"]),  # of the same images what is new alone
        ([set_of()], [set_of(**BOTH, at=[5])], ["fd", "fd kid"]),
        ([set_of(at=[5])], [set_of(**BOTH, at=[5])], ["fd", "kid"]),
        ([set_of()], [set_of(**BOTH, count=900)], ["fd", "fd kid"]),
        ([set_of()], [set_of(**BOTH, reference={"name": "r", "path": "b"})], ["fd", "kid"]),
        ([set_of()], [set_of(**BOTH, reference={"name": "s", "path": "a"})], ["fd", "fd kid"]),
        ([set_of()], [set_of(**BOTH, reference=None)], ["fd", "fd kid"]),
    ],
)
def test_of_the_same_images_only_new_metrics_are_added(
    lab: Lab, stored: list[Any], wanted: list[Any], metrics: list[str]
) -> None:
    store_plan(folder := lab.sweep("s"), edited({**FIRST, "evaluate": stored}))
    both = plan_to_run(folder, edited({**FIRST, "evaluate": wanted}), extend=True)
    store_plan(folder, both)
    found = [getattr(spec, "metrics", [spec.kind]) for spec in both.evaluations]
    assert load_plan(folder).evaluations == both.evaluations, "nothing is measured again"
    assert [" ".join(names) for names in found] == metrics


def test_the_run_of_a_baseline_may_be_a_trial_of_the_edited_file() -> None:
    stored = edited(FIRST)
    trial = dataclasses.replace(stored.trials[0], role="trial")
    both = extended(stored, dataclasses.replace(stored, trials=(trial,)))
    assert [trial.role for trial in both.trials] == ["baseline", "trial", "trial", "trial"]
    assert what_is_added(stored, both) == "adds 1 trial (dense seed 0); 3 trials as before"
    assert what_is_added(both, both) == "adds nothing; 4 trials as before"
    measured = extended(stored, edited({**FIRST, "evaluate": ["fd@1k", "kid@1k"]}))
    assert "kid@1k for every run" in what_is_added(stored, measured)


def test_an_extension_overwrites_no_other(folder: SweepFolder) -> None:
    late = plan_to_run(folder, edited(WIDER), extend=True)
    store_plan(folder, plan_to_run(folder, edited({**FIRST, "seeds": [0, 1]}), extend=True))
    with pytest.raises(UserError, match="planned with other settings"):
        store_plan(folder, late)


SPACE = {"axes": {"route": {"start": "0..3", "end": "6..9"}}, "search": {"trials": 3}}


@pytest.mark.parametrize(
    ("stored", "changes", "said"),
    [
        (FIRST, SPACE, "a search is not extended"),
        (SPACE, FIRST, "a search is not extended"),
        (FIRST, {**WIDER, "match": "train_flops"}, "compares at equal steps, and this file at eq"),
        (FIRST, {**FIRST, "fixed": {"train.batch": 8}}, "train.batch was 16, is 8; an extension"),
        (FIRST, {**WIDER, "baseline": None}, "baseline.none was .*another --name makes another"),
        (
            {**FIRST, "baseline": {"routes": []}, "fixed": {"train": {"lr": 1, "clip": 2}}},
            {**WIDER, "baseline": {"routes": [], "train.lr": 1}, "fixed": {"train.clip": 3}},
            "train.lr was 1, is 0.006; train.clip was 2, is 3; 1 field more",
        ),
    ],
)
def test_neither_a_search_nor_another_question_or_base_run_extends_a_sweep(
    lab: Lab, stored: dict[str, Any], changes: dict[str, Any], said: str
) -> None:
    store_plan(lab.sweep("s"), edited(stored))
    with pytest.raises(UserError, match=f"^sweep 's'.* {said}"):
        plan_to_run(lab.sweep("s"), edited(changes), extend=True)


def test_what_the_earlier_file_had_alone_is_noted(folder: SweepFolder) -> None:
    assert "earlier" not in extended(load_plan(folder), edited(WIDER)).sources
    once = extended(load_plan(folder), edited(OTHER))
    assert len(once.sources["earlier"]) == 1
    third = {**FIRST, "axes": {"route": ["2->8"], "rate": [0.9]}}
    files = extended(once, edited(third)).sources["earlier"]
    assert [file["sweep"]["axes"]["rate"] for file in files] == [[0.25, 0.5], [0.75]]
    assert [sorted(file) for file in files] == [["experiment", "sweep"]] * 2
    unmeasured = extended(edited(FIRST), edited({**FIRST, "evaluate": []}))
    assert len(unmeasured.sources["earlier"]) == 1  # the same trials, and it measured them
