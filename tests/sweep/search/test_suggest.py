"""A search: what it asks for depends on its seed and results alone, and survives what stops it."""

from __future__ import annotations

import random
import shutil
from collections import Counter
from dataclasses import replace
from typing import Any

import pytest

from tests.pretender import Pretender
from tests.sweep.plans import DEEP, plan_of, tiny
from tread_lab.config.errors import UserError
from tread_lab.config.sweep import SearchSpec
from tread_lab.records.lab import Lab
from tread_lab.sweep.plan import Plan, pending_tasks, store_plan
from tread_lab.sweep.search_space import Space
from tread_lab.sweep.suggest import (
    Observation,
    SearchQueue,
    propose,
)

CELLS = [{"start": i, "end": j} for i in range(8) for j in range(i, 8)]


def planned(**search: Any) -> Plan:
    search = {"trials": 6, "startup": 3, "objectives": ["heldout/loss"], **search}
    space = {"axes": {"route": {"start": "0..7", "end": "0..7"}}, "where": "start <= end"}
    return plan_of(tiny(model=DEEP), "searched", **space, seeds=[0, 1], search=search)


def cells(lab: Lab) -> list[dict[str, Any]]:
    return [entry.cell for entry in lab.sweep("searched").suggestions()]


def searched(lab: Lab, plan: Plan, **pretender: Any) -> Pretender:
    store_plan(lab.sweep(plan.name), plan)
    done = Pretender(lab, **pretender)
    done.run(SearchQueue(lab, plan))
    return done


@pytest.mark.parametrize("sampler", ["tpe", "random"])
def test_no_cell_is_suggested_twice(sampler: str) -> None:
    space, observations = Space(CELLS[:12]), list[Observation]()
    goals = ["heldout/loss", "cost/train_flops"]
    spec = SearchSpec(sampler=sampler, startup=3, objectives=tuple(goals))  # type: ignore[arg-type]
    for _ in CELLS[:12]:
        cell = propose(spec, goals, space, observations)
        observations.append(Observation(cell, "measured", (float(cell % 5), float(cell))))
    assert sorted(entry.cell for entry in observations) == list(range(12))


def test_gp_finds_the_best_cell_early() -> None:
    space, goals = Space(CELLS), ["heldout/loss"]
    spec, observations = SearchSpec(sampler="gp", startup=6), list[Observation]()
    while 0.0 not in [value for seen in observations for value in seen.values or ()]:
        assert len(observations) < len(CELLS) // 2, observations
        found = propose(spec, goals, space, observations)
        cell = space.cells[found]
        loss = float((cell["start"] - 2) ** 2 + (cell["end"] - 5) ** 2)
        observations.append(Observation(found, "measured", (loss,)))


def test_map_asks_for_seeds_of_leading_cells(lab: Lab) -> None:
    assert len(pending_tasks(planned(sampler="map", trials=50), lab)) == 50 + 2  # 36 cells twice
    searched(lab, planned(sampler="map", trials=24, startup=8), diverges="0")
    counts = Counter((cell["start"], cell["end"]) for cell in cells(lab))
    twice = [place for place, count in counts.items() if count > 1]
    assert max(counts.values()) == 2 and (2, 5) in twice, counts
    assert all(abs(start - 2) + abs(end - 5) < 5 for start, end in twice), counts
    with pytest.raises(UserError, match=r"search.sampler: map requires at most"):
        plan_of(tiny(model=DEEP), "x", axes={"train.lr": [1, 2]}, search={"sampler": "map"})


def test_gp_avoids_diverging_cells() -> None:
    space = Space([{"train.lr": k} for k in range(33)])
    seen = [Observation(k, "measured", (-k,)) for k in (0, 8, 16)]  # better up to where it diverges
    seen += [Observation(k, "bad") for k in (20, 24, 32)]
    spec = SearchSpec(sampler="gp", startup=3)
    seeds = range(3)
    assert all(propose(replace(spec, seed=k), ["gap/heldout"], space, seen) < 20 for k in seeds)


def test_suggestions_ignore_the_order_of_ends(lab: Lab, tmp_path: Any) -> None:
    plan = planned(parallel=3, trials=6)
    first = searched(lab, plan)
    assert len(first.done) == 2 + 2 * 6  # baselines and cells, a run for each seed
    assert [bool(task.spec.routes) for task in first.done[:3]] == [False, False, True]
    for number in range(2):
        other = Lab(tmp_path / str(number))
        searched(other, plan, slots=6, order=random.Random(number))
        assert cells(other) == cells(lab)


@pytest.mark.parametrize(("sampler", "trials", "runs"), [("tpe", 6, 12), ("map", 12, 12)])
def test_interrupted_search_repeats_its_suggestions(
    sampler: str, trials: int, runs: int, lab: Lab, tmp_path: Any
) -> None:
    plan, whole = planned(sampler=sampler, trials=trials, startup=6), Lab(tmp_path / "whole")
    searched(whole, plan)
    searched(lab, plan, most=7, slots=2)
    before = cells(lab)
    assert 0 < len(before) < trials
    folder = lab.sweep("searched")
    with folder.suggestions_path.open("a") as file:
        file.write('{"number": 9, "cell"')  # torn in the middle of a write
    again = searched(lab, plan)
    assert cells(lab) == cells(whole)
    assert len(again.done) == 2 + runs - 7  # nothing that had ended was carried out again
    assert len({task.spec for task in again.done}) == len(again.done)
    elsewhere = Lab(tmp_path / "elsewhere")
    shutil.copytree(whole.root / "runs", elsewhere.root / "runs")  # a run that exists is an answer
    assert searched(elsewhere, plan).done == [] and cells(elsewhere) == cells(whole)
