"""Solvers of the ODE or of random steps, with one signature."""

# B batch, C channels, H height, W width

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import Protocol

from torch import Tensor

from tread_lab.config import evaluation
from tread_lab.config.registry import Registry

# velocity(z_BCHW, level) -> dz/dlevel
Velocity = Callable[[Tensor, Tensor], Tensor]


class Field(Protocol):
    """Input of a solver: the velocity of the ODE, or the random steps of the process."""

    def __call__(self, z_BCHW: Tensor, level: Tensor) -> Tensor:
        """dz/dlevel."""
        ...

    def reverse(self, z_BCHW: Tensor, now: Tensor, then: Tensor) -> tuple[Tensor, Tensor]:
        """Mean and deviation of z at the lower level `then`."""
        ...

    def noise(self, step: int) -> Tensor:
        """Standard normal numbers like z, seeded per image."""
        ...


Solver = Callable[[Field, Tensor, Tensor], Tensor]


def _steps(levels: Tensor) -> Iterator[tuple[Tensor, Tensor]]:
    """Yield the levels of every step but those of no length, which DDPM's nearest levels have."""
    return ((now, then) for now, then in pairwise(levels) if now != then)


def euler(velocity: Velocity, z_BCHW: Tensor, levels: Tensor) -> Tensor:
    """z at the last level; first order, one call per step."""
    for now, then in _steps(levels):
        z_BCHW = z_BCHW + (then - now) * velocity(z_BCHW, now)
    return z_BCHW


def heun(velocity: Velocity, z_BCHW: Tensor, levels: Tensor, *, onto_0: bool = False) -> Tensor:
    """z at the last level; second order, two calls per step, one for a step to level 0, where the
    ODE is singular (Karras et al. 2022, algorithm 1).

    Args:
        onto_0: two calls for the step to 0 as well, for flows, whose ODE is regular there.
    """
    for now, then in _steps(levels):
        d = velocity(z_BCHW, now)
        z_next = z_BCHW + (then - now) * d
        if then > 0 or onto_0:
            z_next = z_BCHW + (then - now) * (d + velocity(z_next, then)) / 2
        z_BCHW = z_next
    return z_BCHW


def random_steps(field: Field, z_BCHW: Tensor, levels: Tensor) -> Tensor:
    """z at the last level; one call per step, the last step without noise: ancestral sampling (Ho
    et al. 2020, algorithm 2), or Euler-Maruyama."""
    for step, (now, then) in enumerate(pairwise(levels)):
        mean_BCHW, deviation = field.reverse(z_BCHW, now, then)
        z_BCHW = mean_BCHW + deviation * field.noise(step)
    return z_BCHW


SOLVERS: Registry[Solver] = Registry(
    "solver",
    {
        "heun": heun,
        "heun_full": functools.partial(heun, onto_0=True),
        "euler": euler,
        "ddim": euler,
        "ddpm": random_steps,
        "sde": random_steps,
    },
    evaluation.SOLVERS,
)
