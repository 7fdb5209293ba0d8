"""Claims about stored plans: read and written without a change, damage and other versions told."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from tread_lab.config.cell import ExcludedCells, Tree, Trial
from tread_lab.config.errors import UserError
from tread_lab.records.stored_plan import StoredPlan, read_plan

TEXT = """{
 "format": 2,
 "name": "s",
 "question": "Where?",
 "experiment": "tiny",
 "evaluate": [{"kind": "heldout_loss", "images": 8}],
 "sources": {"sweep": {"seeds": [0]}, "experiment": {"name": "tiny"}},
 "excluded": [{"reason": "start < end", "count": 2, "examples": [{"start": 3, "end": 2}]}],
 "duplicates": [],
 "search": {"sampler": "tpe"},
 "space": [{"start": 0}, {"start": 1}],
 "created": 1.5,
 "trials": [
  {"role": "baseline", "cell": {}, "seed": 0, "spec": {"train": {"steps": 5}}, "run": "d", "baseline": null},
  {"role": "trial", "cell": {"start": 0}, "seed": 0, "spec": {"train": {"steps": 5}}, "run": "a", "baseline": "d"}
 ]
}
"""  # noqa: E501


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "plan.json"
    path.write_text(TEXT)
    return path


def plan_of(path: Path) -> StoredPlan:
    plan = read_plan(path)
    assert plan is not None
    return plan


def trial(run: str, baseline: str | None = None, **spec: object) -> Trial[Tree]:
    return Trial("trial", {}, 0, {"train": {"steps": 5}, **spec}, run, baseline)


def test_a_plan_that_was_read_is_written_byte_for_byte(path: Path) -> None:
    assert plan_of(path).text() == TEXT


def test_every_field_is_read(path: Path) -> None:
    plan = plan_of(path)
    assert (plan.name, plan.question, plan.experiment) == ("s", "Where?", "tiny")
    assert (plan.sweep_file, plan.base) == ({"seeds": [0]}, {"name": "tiny"})
    assert plan.excluded == (ExcludedCells("start < end", 2, ({"start": 3, "end": 2},)),)
    assert plan.evaluations_as_written == [{"heldout_loss": {"images": 8}}]
    assert plan.space == ({"start": 0}, {"start": 1})
    assert plan.created == 1.5
    assert plan.trials[1] == Trial("trial", {"start": 0}, 0, {"train": {"steps": 5}}, "a", "d")


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("[]", ": must have format 2"),
        (TEXT.replace('"format": 2', '"format": 1'), ": must have format 2, got 1"),
    ],
)
def test_what_is_no_plan_is_told_in_one_line_and_not_taken_for_none(
    path: Path, text: str, line: str
) -> None:
    path.write_text(text)
    with pytest.raises(UserError, match=rf"plan\.json ?{line}"):
        read_plan(path)
    path.unlink()
    assert read_plan(path) is None


def test_a_run_that_several_suggestions_share_stands_once_and_in_order() -> None:
    plan = StoredPlan("s", "", "", (trial("dense"),), (), {})
    more = plan.with_suggested(
        [[trial("dense"), trial("b")], [trial("a"), trial("b", "dense"), trial("c")]]
    )
    assert more.trials == (trial("dense"), trial("b"), trial("a"), trial("c"))
    space, sources = ({}, {}, {}), {"sweep": {"search": {"trials": 9}}}
    assert more.to_suggest == 0, "no search"
    assert dataclasses.replace(more, search={}, space=space, sources=sources).to_suggest == 3 - 2
    assert (
        dataclasses.replace(more, search={}, space=space * 4, sources=sources).to_suggest == 9 - 2
    )
    sources = {"sweep": {"search": {"trials": 9, "of_another_version": 1}}}
    assert dataclasses.replace(plan, search={}, sources=sources).wanted == 9
    assert dataclasses.replace(plan, search={}).wanted == 20, "the default"
    assert plan.trials == (trial("dense"),)


def test_parents_stand_before_the_runs_that_start_from_them_and_the_eldest_first() -> None:
    eldest = {"model": "DiT-S/2", "train": {"steps": 1}}
    parent = {"model": "DiT-S/2", "train": {"steps": 2}, "init_from": {"run": eldest}}
    child = trial("child", "dense 1", init_from={"run": parent})
    others = (trial("b", "dense 0"), trial("a", "dense 1"))
    plan = StoredPlan("s", "", "", (child, *others), (), {})
    assert [spec["train"]["steps"] for spec in plan.runs().values()] == [1, 2, 5, 5, 5]
    assert list(plan.runs())[2:] == ["child", "b", "a"]
    assert plan.baselines == ["dense 1", "dense 0"]
