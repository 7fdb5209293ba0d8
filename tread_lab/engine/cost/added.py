"""What a part of a run adds to the cost of the plain network, within it or beside it."""

# N tokens of an image, n tokens in a block

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

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
