"""Two fields that differ are named, and further ones are counted."""

from __future__ import annotations

from typing import Any

import pytest

from tread_lab.records.plan import StoredPlan, StoredTrial
from tread_lab.sweep.plan.difference import difference, in_short


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


def stored(*trials: tuple[str, str | None], evaluate: tuple[Any, ...] = (), **sweep: Any) -> Any:
    """A plan of trials by (run, baseline); a baseline is one without."""
    made = tuple(
        StoredTrial("trial" if base else "baseline", {"route": run}, 0, {}, run, base)
        for run, base in trials
    )
    return StoredPlan("s", "", "", made, evaluate, {"sweep": sweep})


def test_new_and_gone_trials_are_counted_with_an_example_each() -> None:
    earlier = stored(("d", None), ("a", "d"), ("b", "d"))
    later = stored(("d", None), ("e", None), ("b", "d"), ("b", "e"), ("c", "d"))
    assert difference(earlier, later) == (
        "2 trials new (e.g. b s=0 seed 0), 1 trial gone (e.g. a s=0 seed 0)"
    )
    assert difference(later, stored(("d", None), ("b", "d"))) == (
        "0 trials new, 2 trials gone (e.g. b s=0 seed 0)"
    )


def test_two_evaluations_of_one_name_are_said_once() -> None:
    loss, other = ({"kind": "heldout_loss", "images": images} for images in (8, 9))
    earlier, later = (
        stored(evaluate=(loss,)),
        stored(evaluate=(other, loss, {**other, "levels": 2})),
    )
    assert difference(earlier, later) == "measures heldout_loss too"
    assert difference(later, earlier) == "no longer heldout_loss"
    assert difference(stored(evaluate=(loss,)), stored(evaluate=(other,))).count("; no longer") == 1


def test_a_long_value_is_cut_and_a_missing_one_is_nothing() -> None:
    text = "x" * 39  # 41 characters with its quotes
    assert difference(stored(a=text), stored(a="y")) == (f"sweep.a was 'xxx{'x' * 33}..., is 'y'")
    assert difference(stored(a="x" * 38), stored(a="y")) == f"sweep.a was '{'x' * 38}', is 'y'"
    assert difference(stored(a=1, b=None, c=[]), stored(b=2, c=(3,))) == (
        "sweep.a was 1, is nothing; sweep.b was nothing, is 2; 1 field more"
    )
    assert difference(stored(a=(1, 2)), stored(a=[1, 2])) == "the same trials in another order"


def test_the_run_of_a_baseline_that_becomes_a_trial_is_new() -> None:
    trial = StoredTrial("trial", {"route": "d"}, 0, {}, "d", None)
    later = StoredPlan("s", "", "", (trial,), (), {"sweep": {}})
    assert (
        difference(stored(("d", None)), later) == "1 trial new (e.g. d s=0 seed 0), 0 trials gone"
    )


def test_in_short_two_trials_are_named() -> None:
    trials: Any = stored(("a", "d"), ("b", "d"), ("c", "d")).trials
    assert in_short(trials) == "a s=0 seed 0; b s=0 seed 0"
    assert in_short(trials[2:]) == "c s=0 seed 0"
