"""Claims about schedules: each name of the spec has a formula, and no other name means one."""

from __future__ import annotations

import dataclasses

import pytest

from tread_lab.engine.schedule import SCHEDULES, learning_rate
from tread_lab.specs import TrainSpec, UserError, recipe


def test_every_schedule_of_the_spec_has_a_formula() -> None:
    assert set(SCHEDULES) == {"constant", "sqrt_decay"}
    assert set(recipe.SCHEDULES) == set(SCHEDULES)


def test_a_schedule_without_formula_is_an_error_with_a_near_miss() -> None:
    spec = dataclasses.replace(TrainSpec(), schedule="sqrt_decai")
    with pytest.raises(UserError, match=r"unknown 'sqrt_decai', did you mean 'sqrt_decay'\?$"):
        learning_rate(spec, 0)
