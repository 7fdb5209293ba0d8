"""Claims about objectives: where REPA aligns a network by default."""

from __future__ import annotations

from typing import Any

import pytest

from tread_lab.specs import UserError
from tread_lab.specs.objective import EDMSpec
from tread_lab.systems.repa.spec import RepaSpec
from tread_lab.systems.sd_dit.spec import DiscriminationLoss


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


def test_features_have_the_width_of_their_encoder() -> None:
    assert (RepaSpec().features, RepaSpec(encoder="fashion16-v1").features) == (768, 64)


@pytest.mark.parametrize("name", ["p_std", "sigma_data"])
def test_deviations_of_edm_are_above_zero(name: str) -> None:
    with pytest.raises(UserError, match=f"{name}: must be positive, got 0"):
        EDMSpec(**{name: 0.0})
    assert EDMSpec(p_mean=0.0).p_mean == 0.0


@pytest.mark.parametrize(
    "name",
    ["weight", "level", "prototypes", "hidden", "bottleneck", "student_temperature",
     "teacher_temperature"],
)  # fmt: skip
def test_numbers_of_self_distillation_are_above_zero(name: str) -> None:
    with pytest.raises(UserError, match=f"{name}: must be positive, got 0"):
        DiscriminationLoss(**{name: 0})
