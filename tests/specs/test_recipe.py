"""Claims about how a run is trained."""

from __future__ import annotations

from typing import Any

import pytest

from tread_lab.specs import UserError
from tread_lab.specs.recipe import EmaSpec, TrainSpec
from tread_lab.systems.repa.spec import RepaSpec


@pytest.mark.parametrize(("depth", "block"), [(3, 2), (12, 3), (13, 7), (24, 7), (28, 7)])
def test_the_aligned_block_follows_the_depth(depth: int, block: int) -> None:
    assert RepaSpec().block_of(depth) == block


@pytest.mark.parametrize(
    ("written", "depth", "block"),
    [(0, 4, 0), (3, 4, 3), ("B-1", 4, 3), ("1/2", 12, 6), (0.25, 8, 2)],
)
def test_the_aligned_block_is_written_as_positions_are(
    written: Any, depth: int, block: int
) -> None:
    assert RepaSpec(block=written).block_of(depth) == block


@pytest.mark.parametrize("written", [4, -1, "B-5", 1.0])
def test_a_block_outside_the_network_is_not_aligned(written: Any) -> None:
    with pytest.raises(UserError, match=r"repa.block: -?\d leaves the network: blocks are 0..3"):
        RepaSpec(block=written).block_of(4)


def test_after_a_halflife_half_of_the_first_weights_is_left() -> None:
    assert EmaSpec(halflife=0.5).at(10) ** 5 == pytest.approx(0.5)
    assert EmaSpec(halflife=0.1).at(400_000) ** 40_000 == pytest.approx(0.5)
    assert EmaSpec(halflife=0.5).at(0) == EmaSpec().decay == 0.9999
    assert EmaSpec(decay=0.99).at(10) == EmaSpec(decay=0.99).at(400_000) == 0.99


@pytest.mark.parametrize(("written", "steps"), [(30, 30), (30.0, 30), (1.0, 1), (0.25, 50), (0, 0)])
def test_a_warm_up_is_steps_or_a_share_of_them(written: float, steps: int) -> None:
    assert TrainSpec(steps=200, warmup=written) == TrainSpec(steps=200, warmup=steps)
