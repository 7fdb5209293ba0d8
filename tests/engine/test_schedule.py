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


@pytest.mark.parametrize(
    ("fields", "rates"),
    [
        ({}, [2.0, 2.0, 2.0, 2.0]),
        ({"warmup": 3}, [0.5, 1.0, 1.5, 2.0]),
        ({"warmup": 1}, [1.0, 2.0, 2.0, 2.0]),
        ({"schedule": "sqrt_decay"}, [2.0, 2 * 0.75**0.5, 2 * 0.5**0.5, 1.0]),
        ({"schedule": "sqrt_decay", "warmup": 1}, [1.0, 2 * 0.75**0.5, 2 * 0.5**0.5, 1.0]),
    ],
)
def test_the_learning_rate_of_every_step(fields: dict, rates: list[float]) -> None:
    spec = TrainSpec(steps=4, lr=2.0, **fields)
    assert [learning_rate(spec, step) for step in range(4)] == pytest.approx(rates, rel=1e-12)
