"""Several sweeps are one plan: what they share is there once, and nothing else is merged."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.synthetic import small, write_sweep
from tread_lab.frames import plan_frame
from tread_lab.records.lab import Lab
from tread_lab.records.plan import StoredPlan
from tread_lab.records.several_sweeps import SeveralSweeps, between, united
from tread_lab.specs.errors import UserError

SEEDS = (0, 1)
BATCH = "train.batch"


@pytest.fixture
def lab(tmp_path: Path) -> Lab:
    """Two sweeps that share a route, and one with other runs of all routes."""
    both, own = {"seeds": SEEDS, "history": False}, ((2, 8), (5, 8))
    write_sweep(tmp_path, small(name="a", routes=((0, 4), (2, 8)), **both))
    write_sweep(tmp_path, small(name="b", routes=own, **both))
    return write_sweep(tmp_path, small(name="c", routes=own, steps=800, **both))


def test_shared_runs_are_there_once_and_every_cell_says_where_it_is(lab: Lab) -> None:
    folder = lab.known_sweeps("a", "b", "a")
    assert isinstance(folder, SeveralSweeps) and folder.name == "a,b"
    frame = plan_frame(lab, folder.plan())
    named = frame.groupby("cell")["seed"].count().to_dict()
    cells = ("dense", "0->4 s=0.5 sweep=a", "2->8 s=0.5 sweep=a, b", "5->8 s=0.5 sweep=b")
    assert named == dict.fromkeys(cells, len(SEEDS))
    assert frame["run"].is_unique and frame["gap/heldout"].notna().sum() == 6
    stamp = folder.stamp
    os.utime(lab.sweep("a").plan_path, (1, 1))  # as an import leaves a plan that was extended
    assert folder.stamp != stamp and lab.sweep("absent").stamp == 0


def test_what_sweeps_say_of_themselves_is_said_once_and_where_they_agree(lab: Lab) -> None:
    facts = {"a": (None, "train_flops"), "b": (5.0, "train_flops"), "c": (3.0, None)}
    plans = [
        replace(lab.sweep(name).plan(), created=created, sources={"sweep": {"match": match}})
        for name, (created, match) in facts.items()
    ]
    one, *_ = plans
    assert (united(plans).created, united(plans).match) == (3.0, None)
    assert (united(plans[:2]).match, united([one, one]).created) == ("train_flops", None)
    more = united([replace(one, question=question) for question in ("B?", "", "A?", "B?")])
    assert (more.name, more.question) == ("a,a,a,a", "B? / A?")


def test_baselines_that_differ_say_of_which_sweep_they_are(lab: Lab) -> None:
    frame = plan_frame(lab, lab.known_sweeps("a", "c").plan())
    dense = frame.loc[frame["role"] == "baseline", "cell"].unique()
    assert sorted(dense) == ["dense sweep=a", "dense sweep=c"]
    own = {name: plan_frame(lab, lab.sweep(name).plan()) for name in "ac"}
    gaps = {**dict(zip(own["a"]["run"], own["a"]["gap/heldout"]))}
    gaps |= dict(zip(own["c"]["run"], own["c"]["gap/heldout"]))
    assert frame.set_index("run")["gap/heldout"].dropna().to_dict() == {
        run: gap for run, gap in gaps.items() if gap == gap
    }


def test_seeds_of_several_sweeps_are_seeds_of_one_cell(lab: Lab) -> None:
    write_sweep(lab.root, small(name="d", routes=((2, 8), (5, 8)), seeds=(2,), history=False))
    frame = plan_frame(lab, lab.known_sweeps("a", "d").plan())
    assert frame.groupby("cell")["seed"].apply(list).to_dict() == {
        "dense": [0, 1, 2],
        "0->4 s=0.5 sweep=a": [0, 1],
        "2->8 s=0.5 sweep=a, d": [0, 1, 2],
        "5->8 s=0.5 sweep=d": [2],
    }


def test_equal_cells_are_paired_seed_by_seed_with_those_of_the_first(lab: Lab) -> None:
    folder = lab.known_sweeps("b", "c", "a")
    assert isinstance(folder, SeveralSweeps)
    plan = folder.differences()
    runs = {
        (name, trial.role, repr(trial.cell), trial.seed): trial.run
        for name in "bc"
        for trial in lab.sweep(name).plan().trials
    }
    pairs = {
        (runs["c", role, cell, seed], runs["b", role, cell, seed])
        for (name, role, cell, seed) in runs
        if name == "c"
    }
    assert {(t.run, t.baseline) for t in plan.trials if t.role == "trial"} == pairs
    assert len(pairs) == 6  # dense and two routes of two seeds; `a` shares what it has of them


@pytest.mark.parametrize("axes", [("precision", "train.lr"), ("train.lr", "precision"), ()])
def test_cells_are_equal_by_their_settings_however_their_axes_are_written(
    axes: tuple[str, ...], lab: Lab
) -> None:
    """A sweep may fix what the other varies, or vary it in another order."""
    first, other = lab.sweep("b").plan(), lab.sweep("c").plan()
    values = {"train.lr": first.trials[0].spec["train"]["lr"], "precision": "fp32"}
    ordered = {axis: values[axis] for axis in axes}
    pairs = between([with_axes(first, values), with_axes(other, ordered)]).trials
    assert [(t.run, t.baseline) for t in pairs if t.role == "trial"] == [
        (theirs.run, ours.run) for ours, theirs in zip(first.trials, other.trials)
    ]
    assert len(between([with_axes(first, {"precision": "bf16"}), other]).trials) == 4  # dense


def with_axes(plan: StoredPlan, values: dict[str, Any]) -> StoredPlan:
    """Return a plan whose trials have further axis values."""
    trials = [
        trial if trial.role == "baseline" else replace(trial, cell={**trial.cell, **values})
        for trial in plan.trials
    ]
    return replace(plan, trials=tuple(trials))


def test_equal_cells_are_paired_where_one_sweep_was_extended_by_an_axis_and_a_seed(
    lab: Lab,
) -> None:
    b, c = (lab.sweep(name).plan() for name in "bc")
    more = [
        replace(
            t,
            cell={**t.cell, BATCH: t.spec["train"]["batch"]},
            seed=2,
            run=f"f{t.run[1:]}",
            spec={**t.spec, "seed": 2},
        )
        for t in c.trials
        if t.role == "trial" and t.seed == 1
    ]
    extended = replace(c, trials=(*c.trials, *more))
    assert {BATCH} <= {axis for t in extended.with_baseline_cells.trials for axis in t.cell}
    assert len(more) == 2 and pairs_of(between([b, extended])) == pairs_of(between([b, c]))


def pairs_of(plan: StoredPlan) -> list[tuple[str, str | None]]:
    return [(trial.run, trial.baseline) for trial in plan.trials]


@pytest.mark.parametrize("name", ["a,b", "d", "a,../b"])
def test_commands_of_one_sweep_take_no_several(lab: Lab, name: str) -> None:
    with pytest.raises(UserError):
        lab.known(name)
    with pytest.raises(UserError, match="no sweep 'd'"):
        lab.known_sweeps("a", "d")
