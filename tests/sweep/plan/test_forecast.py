"""A forecast lets each run start, in order, in the slot that is free first."""

from __future__ import annotations

from tread_lab.sweep.plan.forecast import makespan, starts


def test_a_run_starts_in_the_slot_that_is_free_first() -> None:
    assert starts([5.0, 1.0, 1.0, 4.0], 2) == [0.0, 0.0, 1.0, 2.0]
    assert starts([2.0, 3.0], 1) == [0.0, 2.0]


def test_the_last_run_to_end_need_not_be_the_last_to_start() -> None:
    assert makespan([9.0, 1.0, 1.0], 2) == 9.0
    assert makespan([2.0, 3.0], 0) == 5.0
    assert makespan([], 2) == 0.0
