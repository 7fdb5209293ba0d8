"""Claims about how a run is trained."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.four_sweeps import same_as_stored
from tread_lab.config.recipe import EmaSpec, TrainSpec
from tread_lab.methods.repa.spec import RepaSpec


def test_the_aligned_block_follows_the_depth_or_is_written_as_positions_are() -> None:
    written, depths = (None, 0, 2, "B-1", "1/2", 0.25), (3, 4, 5, 8, 12, 13, 24, 28)
    lines = [
        f"{block} of {depths}: {[RepaSpec(block=block).block_of(depth) for depth in depths]}"
        for block in written
    ]
    same_as_stored(Path(__file__).parent / "stored" / "aligned.txt", "\n".join(lines) + "\n")


def test_after_a_halflife_half_of_the_first_weights_is_left() -> None:
    assert EmaSpec(halflife=0.5).at(10) ** 5 == pytest.approx(0.5)
    assert EmaSpec(halflife=0.1).at(400_000) ** 40_000 == pytest.approx(0.5)
    assert EmaSpec(halflife=0.5).at(0) == EmaSpec().decay == 0.9999
    assert EmaSpec(decay=0.99).at(10) == EmaSpec(decay=0.99).at(400_000) == 0.99


def test_a_warm_up_that_is_a_share_of_the_steps_is_the_nearest_step() -> None:
    assert [TrainSpec(steps=7, warmup=share).warmup for share in (0.2, 0.25, 0.3)] == [1, 2, 2]
