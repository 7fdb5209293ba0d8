"""Claims about what a sweep file may say of its seeds, variants, search and early stopping."""

from __future__ import annotations

from typing import Any

import pytest

from tread_lab.specs import UserError, decode
from tread_lab.specs.sweep import SearchSpec, StopEarlySpec, SweepSpec


def test_a_mistake_in_a_search_is_named() -> None:
    with pytest.raises(UserError, match=r"^search: unknown key 'trails', did you mean 'trials'"):
        decode(SearchSpec, {"trails": 3}, "search")
    with pytest.raises(UserError, match=r"^search.objectives: must be distinct"):
        decode(SearchSpec, {"objectives": ["gap/heldout", "gap/heldout"]}, "search")


def test_no_rung_is_near_the_end() -> None:
    assert StopEarlySpec().rungs(800) == (88, 264)
    assert StopEarlySpec(grace=1).rungs(9) == StopEarlySpec(grace=1).rungs(26) == (1, 3)
    assert StopEarlySpec(reduction=10).rungs(400_000) == (4000, 40_000)


def test_early_stopping_requires_one_seed() -> None:
    with pytest.raises(UserError, match=r"^stop_early: requires one seed, got 3"):
        SweepSpec(experiment="tiny", seeds=(0, 1, 2), stop_early=StopEarlySpec())
    assert SweepSpec(experiment="tiny", seeds=(4,), stop_early=StopEarlySpec()).stop_early


def test_a_run_of_a_few_steps_is_first_judged_at_its_first_step() -> None:
    assert [StopEarlySpec().first_rung(steps) for steps in (1, 8, 9, 18, 900)] == [1, 1, 1, 2, 100]
    assert StopEarlySpec(grace=7).first_rung(3) == 7
    assert StopEarlySpec().rungs(8) == (1,)


def test_early_stopping_takes_asha_alone() -> None:
    assert decode(StopEarlySpec, "asha") == StopEarlySpec()
    with pytest.raises(UserError, match="must be asha, null or"):
        decode(StopEarlySpec, "median")


@pytest.mark.parametrize(
    ("seeds", "said"),
    [([], "seeds: must be distinct and at least one"),
     ([3, -1], "seeds: must not be negative, got -1"),
     ("0.5..1.5 linear 3", "seeds: must be whole numbers, got 0.5..1.5")],
)  # fmt: skip
def test_seeds_that_cannot_be_are_refused(seeds: Any, said: str) -> None:
    with pytest.raises(UserError, match=said):
        decode(SweepSpec, {"experiment": "tiny", "seeds": seeds})
    assert decode(SweepSpec, {"experiment": "tiny", "seeds": "0..3"}).seeds == (0, 1, 2, 3)


def test_names_of_variants_are_texts() -> None:
    tree = {"experiment": "tiny", "variants": {3: {"a": {}}}}
    assert decode(SweepSpec, tree).variants == {"3": {"a": {}}}
    with pytest.raises(UserError, match=r"variants\.route: routes have a field of this name"):
        decode(SweepSpec, {"experiment": "tiny", "variants": {"route": {"a": {}}}})
    with pytest.raises(UserError, match=r"variants\.m: expected {name: {field: value}}"):
        decode(SweepSpec, {"experiment": "tiny", "variants": {"m": {"a": {}, "b": 3}}})
