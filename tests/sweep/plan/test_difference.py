"""Two fields that differ are named, and further ones are counted."""

from __future__ import annotations

import pytest

from tread_lab.records.plan import StoredPlan
from tread_lab.sweep.plan.difference import difference


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
