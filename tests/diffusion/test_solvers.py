"""Solvers step by step on numbers that are known by hand."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from tread_lab.diffusion.solvers import SOLVERS

LEVELS = torch.tensor([4.0, 2.0, 0.0], dtype=torch.float64)


class Field:
    """dz/dlevel = z + level; random steps of mean z / 2 + then and deviation `then`."""

    def __call__(self, z: Tensor, level: Tensor) -> Tensor:
        return z + level

    def reverse(self, z: Tensor, now: Tensor, then: Tensor) -> tuple[Tensor, Tensor]:
        return z / 2 + now, then

    def noise(self, step: int) -> Tensor:
        return torch.tensor(10.0 + step)


@pytest.mark.parametrize(
    ("solver", "end"),
    [
        ("euler", 5.0),  # 1 - 2 (1 + 4) = -9, then -9 - 2 (-9 + 2)
        ("ddim", 5.0),
        ("heun", -7.0),  # 1 - 2 (5 + (-9 + 2)) / 2 = 3, then onto 0: 3 - 2 (3 + 2)
        ("heun_full", 5.0),  # onto 0: d = 5, z' = -7, d' = -7 + 0; 3 - 2 (5 - 7) / 2
        ("ddpm", 14.25),  # 1/2 + 4 + 2 * 10 = 24.5, then 12.25 + 2 + 0 * 11
        ("sde", 14.25),
    ],
)
def test_two_steps_by_hand(solver: str, end: float) -> None:
    z = torch.tensor([1.0], dtype=torch.float64)
    assert SOLVERS[solver](Field(), z, LEVELS).tolist() == [end]


def test_heun_is_of_second_order() -> None:
    z = torch.tensor([1.0], dtype=torch.float64)
    levels = torch.tensor([4.0, 2.0, 1.0], dtype=torch.float64)
    # 3 at level 2; d = 5, z' = -2, d' = -2 + 1; 3 - (5 - 1) / 2 = 1
    assert SOLVERS["heun"](Field(), z, levels).tolist() == [1.0]
