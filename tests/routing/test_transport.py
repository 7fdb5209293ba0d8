"""Sending and merging: routed tokens come back bitwise, kept ones where they belong."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from tread_lab import draws
from tread_lab.routing import BatchRoute, run_blocks, select
from tread_lab.routing.transport import gather_tokens, scatter_tokens
from tread_lab.specs import RouteSpec

N = 16


def leg(selection: str, start: int = 1, end: int = 2) -> BatchRoute:
    route = RouteSpec(start=start, end=end, selection=selection)  # type: ignore[arg-type]
    return select(route, draws.uniform((3, N), selection))


def tokens() -> Tensor:
    return draws.normal((3, N, 5), "x")


@pytest.mark.parametrize("selection", ["random", "rows", "structured", "bernoulli"])
def test_there_and_back_changes_nothing(selection: str) -> None:
    x, route = tokens(), leg(selection)
    assert torch.equal(
        scatter_tokens(x, gather_tokens(x, route.keep_BK), route.keep_BK, route.real_BK), x
    )


@pytest.mark.parametrize("selection", ["random", "rows", "structured", "bernoulli"])
def test_only_kept_places_change(selection: str) -> None:
    x, route = tokens(), leg(selection)
    changed = (
        scatter_tokens(x, gather_tokens(x, route.keep_BK) + 1, route.keep_BK, route.real_BK) != x
    )
    real = torch.ones_like(route.keep_BK, dtype=torch.bool)
    kept = torch.zeros(3, N, dtype=torch.bool)
    kept.scatter_(1, route.keep_BK, real if route.real_BK is None else route.real_BK)
    assert torch.equal(changed.all(2), kept)
    assert torch.equal(changed.any(2), kept)


def test_positions_follow_their_tokens_and_come_back() -> None:
    seen: list[tuple[Tensor, Tensor]] = []

    def block(x: Tensor, c: Tensor, positions: Tensor) -> Tensor:
        seen.append((x, positions))
        return x

    x = tokens()
    run_blocks([block] * 4, x, x[:, 0], x, routing=(leg("rows"),))
    assert [len(positions[0]) for _, positions in seen] == [16, 8, 8, 16]
    assert all(torch.equal(at, positions) for at, positions in seen)


def test_blocks_hear_which_places_are_real_only_where_numbers_differ() -> None:
    heard: list[int] = []

    def block(x: Tensor, c: Tensor, positions: Tensor | None, *real: Tensor) -> Tensor:
        heard.append(len(real))
        return x

    x = tokens()
    run_blocks([block] * 4, x, x[:, 0], routing=(leg("random"),))
    run_blocks([block] * 4, x, x[:, 0], routing=(leg("bernoulli"),))
    assert heard == [0, 0, 0, 0, 0, 1, 1, 0]
