"""Claims about objectives: where REPA aligns a network by default."""

from __future__ import annotations

import pytest

from tread_lab.specs.objective import RepaSpec


@pytest.mark.parametrize(("depth", "block"), [(3, 2), (12, 3), (13, 7), (24, 7), (28, 7)])
def test_the_aligned_block_follows_the_depth(depth: int, block: int) -> None:
    assert RepaSpec().block_of(depth) == block
