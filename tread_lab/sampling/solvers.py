"""ODE solvers with one signature, so that any of them integrates any process."""

# B batch, C channels, H height, W width

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import pairwise

from torch import Tensor

from tread_lab.specs import evaluation

# velocity(z_BCHW, level) -> dz/dlevel
Velocity = Callable[[Tensor, Tensor], Tensor]
Solver = Callable[[Velocity, Tensor, Tensor], Tensor]


def euler(velocity: Velocity, z_BCHW: Tensor, levels: Tensor) -> Tensor:
    """z at the last level; first order, one call a step."""
    for now, then in pairwise(levels):
        z_BCHW = z_BCHW + (then - now) * velocity(z_BCHW, now)
    return z_BCHW


def heun(velocity: Velocity, z_BCHW: Tensor, levels: Tensor) -> Tensor:
    """z at the last level; second order, two calls a step but one for a step onto level 0, where
    the ODE is singular (Karras et al. 2022, algorithm 1)."""
    for now, then in pairwise(levels):
        d = velocity(z_BCHW, now)
        z_next = z_BCHW + (then - now) * d
        if then > 0:
            z_next = z_BCHW + (then - now) * (d + velocity(z_next, then)) / 2
        z_BCHW = z_next
    return z_BCHW


SOLVERS: Mapping[str, Solver] = evaluation.SOLVERS.code({"heun": heun, "euler": euler})
