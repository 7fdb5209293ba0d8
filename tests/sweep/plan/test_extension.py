"""Claims about an edited sweep file: it is refused, or what is new is added, nothing lost."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest

from tread_lab.config.load import load_experiment
from tread_lab.records.lab import Lab
from tread_lab.records.sweep_folder import SweepFolder
from tread_lab.specs import UserError, decode
from tread_lab.specs.sweep import SweepSpec
from tread_lab.sweep.plan.extension import extended, plan_to_run, what_is_added
from tread_lab.sweep.plan.plan import Plan, make_plan
from tread_lab.sweep.plan.storage import check_plan, load_plan, store_plan

FIRST: dict[str, Any] = {"axes": {"route": ["2->8"], "rate": [0.25, 0.5]}, "evaluate": ["fd@1k"]}
WIDER = {**FIRST, "axes": {"route": ["2->8"], "rate": [0.25, 0.5, 0.75]}}
OTHER = {**FIRST, "axes": {"route": ["2->8"], "rate": [0.75]}}


def plan(sweep: dict[str, Any]) -> Plan:
    spec = decode(SweepSpec, {"experiment": "tiny", **sweep})
    return make_plan("s", spec, load_experiment("tiny"))


@pytest.fixture
def folder(tmp_path: Path) -> SweepFolder:
    folder = Lab(tmp_path).sweep("s")
    store_plan(folder, plan(FIRST))
    return folder


def rates(found: Plan) -> list[Any]:
    return [trial.cell.get("rate", trial.role) for trial in found.trials]


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        (WIDER, "axes.rate was [0.25, 0.5], is [0.25, 0.5, 0.75]; 1 trial new (e.g. 2->8"),
        (OTHER, "1 trial new (e.g. 2->8 s=0.75 seed 0), 2 trials gone (e.g. "),
        ({**FIRST, "evaluate": ["fd@2k"]}, "measures fd@2k too; no longer fd@1k"),
        ({**FIRST, "fixed": {"train": {"steps": 9}}}, "sweep.fixed.train.steps was nothing, is 9"),
    ],
)
def test_an_edited_file_is_refused_in_one_line_that_says_what_differs(
    folder: SweepFolder, changes: dict[str, Any], said: str
) -> None:
    before = folder.plan_path.read_bytes()
    with pytest.raises(UserError, match=r"^[^\n]*$") as error:
        plan_to_run(folder, plan(changes))
    assert said in str(error.value)
    assert "--extend" in str(error.value) and "--name" in str(error.value)
    with pytest.raises(UserError):
        store_plan(folder, plan(changes))
    assert folder.plan_path.read_bytes() == before


def test_the_same_file_and_another_question_are_no_edit(folder: SweepFolder) -> None:
    asked = plan({**FIRST, "question": "What now?"})
    assert plan_to_run(folder, asked) is asked
    check_plan(folder, asked)


def test_extending_adds_what_is_new_and_keeps_the_earlier_plan(folder: SweepFolder) -> None:
    before, text = load_plan(folder), folder.plan_path.read_text()
    both = plan_to_run(folder, plan(OTHER), extend=True)
    assert rates(both) == ["baseline", 0.25, 0.5, 0.75]
    assert both.trials[:3] == before.trials and both.evaluations == before.evaluations
    assert "1 trial (2->8 s=0.75 seed 0)" in what_is_added(before, both)
    store_plan(folder, both)
    assert [path.name for path in folder.earlier_plans] == ["0001.json"]
    assert folder.earlier_plans[0].read_text() == text
    assert rates(load_plan(folder)) == rates(both)
    stored = folder.plan()
    assert stored.created == json.loads(text)["created"] and len(stored.extended) == 1


def test_afterwards_the_edited_file_and_the_first_one_are_both_the_extended_sweep(
    folder: SweepFolder,
) -> None:
    store_plan(folder, plan_to_run(folder, plan(OTHER), extend=True))
    for sweep in (FIRST, OTHER):
        again = plan_to_run(folder, plan(sweep))
        assert rates(again) == ["baseline", 0.25, 0.5, 0.75]
        store_plan(folder, again)
    for sweep in (FIRST, OTHER, WIDER):  # the third one plans the same trials as both
        check_plan(folder, plan(sweep))
    assert plan_to_run(folder, plan(OTHER), extend=True).trials == load_plan(folder).trials
    assert len(folder.earlier_plans) == 1
    with pytest.raises(UserError, match="planned with other settings"):
        plan_to_run(folder, plan({**FIRST, "seeds": [0, 1]}))
    more = plan_to_run(folder, plan({**FIRST, "seeds": [0, 1]}), extend=True)
    store_plan(folder, more)
    assert len(more.trials) == 4 + 3 and len(folder.earlier_plans) == 2
    assert len(folder.plan().extended) == 2
    assert [trial.role for trial in more.trials[:2]] == ["baseline", "baseline"]
    added = what_is_added(again, more)
    assert added.startswith("adds 2 trials (2->8 s=0.25 seed 1; ")
    assert added.endswith("), 1 baseline; 4 trials as before")


def images(**fields: Any) -> dict[str, Any]:
    reference = {"name": "r", "path": "a"}
    return {"samples": {"metrics": ["fd"], "count": 1000, "reference": reference, **fields}}


BOTH = {"metrics": ["fd", "kid"]}


@pytest.mark.parametrize(
    ("stored", "wanted", "metrics"),
    [
        (["fd@1k"], ["fd@1k", "kid@1k", "fd@2k"], ["fd", "kid", "fd"]),
        (["heldout_loss"], ["fd@1k"], ["heldout_loss", "fd"]),
        (["fd@1k"], ["heldout_loss"], ["fd", "heldout_loss"]),
        (["heldout_loss"], ["heldout_loss"], ["heldout_loss"]),
        (["fd@1k"], ["fd@1k", {"samples": {"metrics": [], "count": 64}}], ["fd", ""]),
        ([images()], [images(sampler={"steps": 20})], ["fd", "fd"]),
        ([images()], [images(**BOTH)], ["fd", "kid"]),  # of the same images what is new alone
        ([images()], [images(**BOTH, at=[5])], ["fd", "fd kid"]),
        ([images()], [images(**BOTH, count=900)], ["fd", "fd kid"]),
        ([images()], [images(**BOTH, reference={"name": "r", "path": "b"})], ["fd", "kid"]),
        ([images()], [images(**BOTH, reference={"name": "s", "path": "a"})], ["fd", "fd kid"]),
        ([images()], [images(**BOTH, reference=None)], ["fd", "fd kid"]),
    ],
)
def test_of_the_same_images_only_new_metrics_are_added(
    stored: list[Any], wanted: list[Any], metrics: list[str]
) -> None:
    both = extended(plan({**FIRST, "evaluate": stored}), plan({**FIRST, "evaluate": wanted}))
    found = [getattr(spec, "metrics", [spec.kind]) for spec in both.evaluations]
    assert [" ".join(names) for names in found] == metrics


def test_the_run_of_a_baseline_may_be_a_trial_of_the_edited_file() -> None:
    stored = plan(FIRST)
    trial = dataclasses.replace(stored.trials[0], role="trial")
    both = extended(stored, dataclasses.replace(stored, trials=(trial,)))
    assert [trial.role for trial in both.trials] == ["baseline", "trial", "trial", "trial"]
    assert what_is_added(stored, both) == "adds 1 trial (dense seed 0); 3 trials as before"
    assert what_is_added(both, both) == "adds nothing; 4 trials as before"
    measured = extended(stored, plan({**FIRST, "evaluate": ["fd@1k", "kid@1k"]}))
    assert "kid@1k for every run" in what_is_added(stored, measured)


def test_a_trial_beside_another_baseline_is_another_trial() -> None:
    faster = {"routes": [], "train": {"lr": 0.5}}
    stored, other = plan(FIRST), plan({**FIRST, "baseline": faster})
    both = extended(stored, other)
    assert [trial.role for trial in both.trials] == ["baseline"] * 2 + ["trial"] * 4
    assert [trial.run for trial in both.trials[2:4]] == [trial.run for trial in both.trials[4:]]
    assert [trial.baseline for trial in both.trials[2:]] == [
        trial.run for trial in both.trials[:2] for _ in range(2)
    ]
    assert what_is_added(stored, other).startswith("adds 2 trials (2->8 s=0.25 seed 0; ")


def test_a_kill_between_the_copy_and_the_new_plan_costs_nothing(folder: SweepFolder) -> None:
    both = plan_to_run(folder, plan(WIDER), extend=True)
    folder.keep_plan()
    store_plan(folder, both)
    assert len(folder.earlier_plans) == 1


def test_a_plan_that_was_extended_in_the_meantime_is_not_overwritten(folder: SweepFolder) -> None:
    late = plan_to_run(folder, plan(WIDER), extend=True)
    store_plan(folder, plan_to_run(folder, plan({**FIRST, "seeds": [0, 1]}), extend=True))
    with pytest.raises(UserError, match="planned with other settings"):
        store_plan(folder, late)


def test_a_search_is_not_extended_and_extends_nothing(folder: SweepFolder, tmp_path: Path) -> None:
    axes = {"route": {"start": "0..3", "end": "6..9"}}
    search = plan({"axes": axes, "search": {"trials": 3}})
    with pytest.raises(UserError, match="a search is not extended"):
        plan_to_run(folder, search, extend=True)
    searched = Lab(tmp_path / "other").sweep("s")
    store_plan(searched, search)
    with pytest.raises(UserError, match="a search is not extended"):
        plan_to_run(searched, plan(FIRST), extend=True)


def test_what_the_earlier_file_had_alone_is_noted(folder: SweepFolder) -> None:
    assert "earlier" not in extended(load_plan(folder), plan(WIDER)).sources
    once = extended(load_plan(folder), plan(OTHER))
    assert len(once.sources["earlier"]) == 1
    third = {**FIRST, "axes": {"route": ["2->8"], "rate": [0.9]}}
    files = extended(once, plan(third)).sources["earlier"]
    assert [file["sweep"]["axes"]["rate"] for file in files] == [[0.25, 0.5], [0.75]]
    assert [sorted(file) for file in files] == [["experiment", "sweep"]] * 2
    unmeasured = extended(plan(FIRST), plan({**FIRST, "evaluate": []}))
    assert len(unmeasured.sources["earlier"]) == 1  # the same trials, and it measured them


def test_runs_of_two_questions_do_not_stand_in_one_sweep(folder: SweepFolder) -> None:
    with pytest.raises(UserError, match=r"^sweep 's' compares at equal steps, and this file at eq"):
        plan_to_run(folder, plan({**WIDER, "match": "train_flops"}), extend=True)
