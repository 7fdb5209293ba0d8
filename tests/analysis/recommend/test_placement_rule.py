"""Placements become tables, one for each depth, and one rule in the depth that suits all."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from tests.synthetic import Synthetic, write_sweep
from tread_lab.analysis.recommend.placement_rule import Rule, Table, best_rule, tables_of
from tread_lab.compare.best_set import best_over_seeds
from tread_lab.frames import trials_frame
from tread_lab.specs import UserError

HELDOUT = "heldout/loss"


def table(depth: int, best: tuple[int, int]) -> Table:
    """All placements of a depth, their values the distance to the best one, three seeds alike."""
    places = [(i, j, 0.5) for i in range(depth - 1) for j in range(i, depth - 1)]
    values = np.array([abs(i - best[0]) + abs(j - best[1]) for i, j, _ in places], dtype=float)
    noise = np.random.default_rng(depth).normal(scale=0.01, size=(3, len(places)))
    return Table(depth, tuple(places), values + noise, 1.0, -values, ("",) * len(places), 0)


@pytest.mark.parametrize(
    ("bests", "rule"),
    [
        (((2, 8), (2, 20)), Rule(2, "B-4", 0.5)),
        (((2, 8), (4, 16)), Rule("2/12", "8/12", 0.5)),
        (((2, 8), (2, 8)), Rule(2, 8, 0.5)),
        (((2, 8), (4, 20)), Rule("2/12", "B-4", 0.5)),
    ],
)
def test_two_depths_tell_a_distance_from_a_share(bests: tuple, rule: Rule) -> None:
    tables = [table(depth, best) for depth, best in zip((12, 24), bests)]
    sets = [best_over_seeds(t.values_SK) for t in tables]
    assert best_rule(tables, sets, cheapest=False) == rule


@pytest.mark.parametrize(("members", "rule"), [(1, Rule(2, "B-4", 0.5)), (2, Rule(0, "B-2", 0.5))])
def test_a_cheap_rule_must_be_among_the_best_at_every_depth(members: int, rule: Rule) -> None:
    """0->B-2 is the cheaper one; it is in the best set of so many of the two depths."""
    tables, sets = [], []
    for k, (depth, best, cheap) in enumerate(((12, (2, 8), (0, 10)), (24, (2, 20), (0, 22)))):
        found = table(depth, best)
        flops_K = np.array([100.0 - (j - i) for i, j, _ in found.places])
        tables.append(replace(found, flops_K=flops_K))
        of_set = (best, cheap) if k < members else (best,)
        members_K = np.array([(i, j) in of_set for i, j, _ in found.places])
        sets.append(replace(best_over_seeds(found.values_SK), members_K=members_K))
    assert best_rule(tables, sets, cheapest=True) == rule


def test_placements_that_no_rule_joins_are_refused() -> None:
    tables = [
        Table(12, ((1, 2, 0.5), (1, 3, 0.5)), np.zeros((3, 2)), 1.0, np.ones(2), ("a", "b"), 0),
        Table(24, ((5, 9, 0.5), (5, 11, 0.5)), np.zeros((3, 2)), 1.0, np.ones(2), ("c", "d"), 0),
    ]
    sets = [best_over_seeds(found.values_SK) for found in tables]
    with pytest.raises(UserError, match="no rule in the depth means a measured placement"):
        best_rule(tables, sets, cheapest=False)


@pytest.mark.parametrize(
    ("rule", "depth", "place"),
    [
        (Rule(2, "B-4", 0.5), 12, (2, 8, 0.5)),
        (Rule(2, "B-4", 0.25), 28, (2, 24, 0.25)),
        (Rule("2/12", "8/12", 0.5), 24, (4, 16, 0.5)),
        (Rule(0, 3, 0.5), 24, (0, 3, 0.5)),
    ],
)
def test_a_rule_means_a_placement_at_each_depth(
    rule: Rule, depth: int, place: tuple[int, int, float]
) -> None:
    assert rule.at(depth) == place


def test_a_rule_reads_as_a_route_is_written() -> None:
    assert str(Rule(2, "B-4", 0.25)) == "2->B-4 at rate 0.25"


def frame_of(folder: Path, *routes: tuple[int, int]) -> pd.DataFrame:
    """The trials of a made sweep with two seeds over these routes."""
    shape = Synthetic(routes=routes, seeds=(0, 1), history=False, similarity=False)
    return trials_frame(write_sweep(folder, shape), "placement")


def test_a_table_holds_seeds_by_placements(tmp_path: Path) -> None:
    frame = frame_of(tmp_path, (0, 2), (2, 8), (1, 5))
    depths = dict.fromkeys(frame["run"], 12)
    (found,) = tables_of(frame, depths, HELDOUT)
    assert found.places == ((0, 2, 0.5), (1, 5, 0.5), (2, 8, 0.5))
    assert (found.depth, found.sign, found.unfinished) == (12, 1.0, 0)
    trials = frame[frame["role"] == "trial"].set_index(["start", "seed"])
    dense = frame[frame["role"] == "baseline"].set_index("seed")[HELDOUT]
    for seed in (0, 1):
        for column, start in enumerate((0, 1, 2)):
            value = found.values_SK[seed, column]
            assert value == pytest.approx(trials.loc[(start, seed), HELDOUT] - dense[seed])
            assert found.flops_K[column] == trials.loc[(start, seed), "cost/train_flops"]
    assert found.runs_K[2] == trials.loc[(2, 0), "run"]
    other = frame.assign(run=frame["run"] + "x", cell=frame["cell"] + " by rows")
    twice = pd.concat([frame, other[other["role"] == "trial"]])
    twice.attrs = frame.attrs
    with pytest.raises(UserError, match="by rows is not the only cell of its placement"):
        tables_of(twice, {**depths, **dict.fromkeys(twice["run"], 12)}, HELDOUT)
    place = ["route", "start", "end", "rate"]
    frame.loc[frame["role"] == "baseline", place] = ["3->7", 3, 7, 0.5]  # routed, and no trial
    assert tables_of(frame, depths, HELDOUT)[0].places == found.places


def test_runs_of_two_depths_are_two_tables(tmp_path: Path) -> None:
    frame = frame_of(tmp_path, (0, 2), (2, 8), (1, 5), (1, 6))
    deep = set(frame[frame["start"] == 1]["run"])
    found = tables_of(frame, {run: 24 if run in deep else 12 for run in frame["run"]}, HELDOUT)
    assert {t.depth: t.places for t in found} == {
        12: ((0, 2, 0.5), (2, 8, 0.5)),
        24: ((1, 5, 0.5), (1, 6, 0.5)),
    }


def test_one_placement_makes_no_rule(tmp_path: Path) -> None:
    frame = frame_of(tmp_path, (2, 8))
    with pytest.raises(UserError, match="fewer than two placements are measured with every seed"):
        tables_of(frame, dict.fromkeys(frame["run"], 12), HELDOUT)
