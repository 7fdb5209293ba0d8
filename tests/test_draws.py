"""Claims about draws: a key names them, and how many keys of a long run draw alike."""

from __future__ import annotations

import torch

from tread_lab import draws


def test_equal_keys_draw_alike_and_others_do_not() -> None:
    first, again = draws.normal((8,), 0, "noise", 5), draws.normal((8,), 0, "noise", 5)
    assert torch.equal(first, again)
    assert not torch.equal(first, draws.normal((8,), 0, "noise", 6))
    assert not torch.equal(first, draws.normal((8,), 1, "noise", 5))


def test_torch_takes_the_low_32_bits_of_a_seed() -> None:
    """What the docstring of `generator` and docs/models.md count from."""
    plain, high = (torch.Generator().manual_seed(7 + (bit << 32)) for bit in (0, 1))
    assert torch.equal(torch.randn(8, generator=plain), torch.randn(8, generator=high))


def test_steps_36980_and_130850_of_seed_0_share_their_noise() -> None:
    """One of the 18 pairs of 400,000 steps; their levels differ."""
    noise = [draws.normal((16,), 0, "noise", step) for step in (36_980, 130_850)]
    level = [draws.uniform((16,), 0, "level", step) for step in (36_980, 130_850)]
    assert torch.equal(*noise) and not torch.equal(*level)
