"""What published systems add to the cost of a run: parameters, MACs and activations."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass

from tread_lab.config.registry import SYSTEMS, load
from tread_lab.config.run import RunSpec

Tokens = tuple[int, ...]  # of an image in each block, from the first to the last


@dataclass(frozen=True)
class Added:
    """What a part adds.

    Attributes:
        parameters, positions: trained values, and those of fixed tables.
        macs: tokens in each block -> MACs of one image's forward pass.
        activations: values of the residual width, and of what matrix products read and write, that
            one image keeps for the backward pass.
        unsampled: those of the parameters that no sampling needs.
    """

    parameters: int = 0
    positions: int = 0
    macs: Callable[[Tokens], int] = lambda tokens: 0
    activations: tuple[int, int] = (0, 0)
    unsampled: int = 0

    def activation_bytes(self, low: int) -> int:
        """Return the bytes of the activations; matrix products work on `low` bytes a value."""
        return 4 * self.activations[0] + low * self.activations[1]


NOTHING = Added()


@dataclass(frozen=True)
class Beside:
    """What stands beside the network while it trains, and is not sampled.

    Attributes:
        auxiliary: what is trained with the network.
        averages_network: whether an average of the network without its last layer sees all tokens
            of every batch, in a forward pass alone.
        averaged: what is averaged beside it.
        buffers: values that are neither trained nor averaged from trained ones.
    """

    auxiliary: Added = NOTHING
    averages_network: bool = False
    averaged: Added = NOTHING
    buffers: int = 0


class Priced:
    """The cost of a published system. By default it adds nothing."""

    def added(self, spec: RunSpec, c_out: int) -> Added:
        """Return what the sampled network costs more; `c_out` channels leave it."""
        return NOTHING

    def beside(self, spec: RunSpec) -> Beside:
        """Return the cost of what is trained or averaged beside the network."""
        return Beside()

    def passes_again(self, spec: RunSpec) -> bool:
        """Return whether a routed step has a second, dense pass of the network."""
        return False


def priced_systems(spec: RunSpec) -> tuple[Priced, ...]:
    """Return the systems that a run asks for, in the order in which they join its steps."""
    asked = {part.system for part in spec.systems.values()}
    return tuple(_system(name) for name in SYSTEMS if name in asked)


@functools.cache
def _system(name: str) -> Priced:
    system: Priced = load(name, "SYSTEM")
    return system
