"""Claims about what a sweep file may say of its seeds, variants, search and early stopping."""

from __future__ import annotations

import re
from typing import Any

import pytest

from tread_lab.config import UserError, decode
from tread_lab.config.sweep import StopEarlySpec, SweepSpec


def test_early_stopping_requires_one_seed() -> None:
    with pytest.raises(UserError, match=r"^stop_early: requires one seed, got 3"):
        SweepSpec(experiment="tiny", seeds=(0, 1, 2), stop_early=StopEarlySpec())
    assert SweepSpec(experiment="tiny", seeds=(4,), stop_early=StopEarlySpec()).stop_early


def test_a_run_of_a_few_steps_is_first_judged_at_its_first_step() -> None:
    assert [StopEarlySpec().first_rung(steps) for steps in (1, 8, 9, 18, 900)] == [1, 1, 1, 2, 100]
    assert StopEarlySpec(grace=7).first_rung(3) == 7
    assert StopEarlySpec().rungs(8) == (1,)


@pytest.mark.parametrize(
    ("seeds", "said"),
    [([], "seeds: must be distinct whole numbers from 0, got []"),
     ([3, -1], "seeds: must be distinct whole"), ([1, 1], "seeds: must be distinct whole"),
     ("0.5..1.5 linear 3", "seeds: must be distinct whole numbers from 0, got [0.5")],
)  # fmt: skip
def test_seeds_that_cannot_be_are_refused(seeds: Any, said: str) -> None:
    with pytest.raises(UserError, match=re.escape(said)):
        decode(SweepSpec, {"experiment": "tiny", "seeds": seeds})
    assert decode(SweepSpec, {"experiment": "tiny", "seeds": "0..3"}).seeds == (0, 1, 2, 3)
