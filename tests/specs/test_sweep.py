"""Claims about what a sweep file may say of its seeds, variants, search and early stopping."""

from __future__ import annotations

from typing import Any

import pytest

from tread_lab.specs import UserError, decode
from tread_lab.specs.sweep import BudgetSpec, SearchSpec, StopEarlySpec, SweepSpec


@pytest.mark.parametrize(
    ("tree", "message"),
    [
        ({"sampler": "tpo"}, "search.sampler"),
        ({"trails": 3}, "did you mean 'trials'"),
        ({"trials": 0}, "search: trials: must be positive"),
        ({"sampler": "nsgaii"}, "search.sampler: 'nsgaii' is not one of tpe, gp, random"),
        ({"objectives": ["gap/heldout", "gap/heldout"]}, "must be distinct"),
    ],
)
def test_a_mistake_in_a_search_is_named(tree: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError, match="search") as raised:
        decode(SearchSpec, tree, "search")
    assert message.removeprefix("search: ") in str(raised.value)


def test_limits_are_told_with_what_is_spent() -> None:
    limits = BudgetSpec(flops=2e12, hours=200, trials=9)
    assert limits.text(flops=1e12, hours=123.4, trials=1) == (
        "2.00e+12 training FLOPs (1.00e+12 spent), 200 h (120 h spent), 9 trials (1 started)"
    )
    assert BudgetSpec(hours=0.5).text(flops=0, hours=0.0123, trials=0) == "0.5 h (0.012 h spent)"


def test_no_run_is_judged_at_its_last_step() -> None:
    assert StopEarlySpec(grace=1).rungs(9) == (1, 3)
    assert StopEarlySpec(grace=1).rungs(10) == (1, 3, 9)
    assert StopEarlySpec(kind="median", grace=2).rungs(6) == (2, 4)


def test_a_run_of_a_few_steps_is_first_judged_at_its_first_step() -> None:
    assert [StopEarlySpec().first_rung(steps) for steps in (1, 8, 9, 18, 900)] == [1, 1, 1, 2, 100]
    assert StopEarlySpec(grace=7).first_rung(3) == 7
    assert StopEarlySpec().rungs(8) == (1, 3)


def test_a_rule_may_be_its_kind_alone_and_one_objective_is_enough_for_most_samplers() -> None:
    assert decode(StopEarlySpec, "median") == StopEarlySpec(kind="median")
    for sampler in ("tpe", "gp", "random"):
        assert decode(SearchSpec, {"sampler": sampler}).objectives == ()


@pytest.mark.parametrize(
    ("seeds", "said"),
    [([], "seeds: \\[\\] must be distinct, at least one"), ([1, 1], "must be distinct"),
     ([3, -1], "seeds: must not be negative, got -1"), ("0..x", "is not a range"),
     ("0.5..1.5 linear 3", "seeds: whole numbers, got 0.5..1.5")],
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
