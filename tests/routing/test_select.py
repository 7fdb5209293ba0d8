"""Selections: exact counts, whole units, uniform, nested, independent and named by their key.

What a selection asks of the grid: tests/config/test_routes.py.
"""

# B batch, N tokens, K kept tokens

from __future__ import annotations

import math
from collections import Counter

import pytest
import torch
from torch import Tensor

from tread_lab import draws
from tread_lab.config import RouteSpec, UserError, decode
from tread_lab.routing import BatchRoute, draw_routing, run_blocks, select
from tread_lab.routing.select import dense_routing

EXACT = ("random", "rows", "structured")
ALL = (*EXACT, "bernoulli")
UNIT = {"random": 1, "rows": 8, "structured": 1, "bernoulli": 1}
N = 64


def route(selection: str, rate: float = 0.5, start: int = 2, end: int = 8) -> RouteSpec:
    return decode(RouteSpec, {"start": start, "end": end, "rate": rate, "selection": selection})


def routed(leg: BatchRoute, tokens: int = N) -> Tensor:
    """Whether each token is routed, [B, N]."""
    real = torch.ones_like(leg.keep_BK, dtype=torch.bool) if leg.real_BK is None else leg.real_BK
    kept_BN = torch.zeros(len(leg.keep_BK), tokens, dtype=torch.bool)
    return ~kept_BN.scatter(1, leg.keep_BK, real)


def rank(B: int, *key: int | str, tokens: int = N) -> Tensor:
    return draws.uniform((B, tokens), "test", *key)


@pytest.mark.parametrize("rate", [0.0, 0.2, 0.25, 1 / 3, 0.5, 0.75, 0.9])
@pytest.mark.parametrize("selection", EXACT)
def test_every_sample_routes_the_exact_number(selection: str, rate: float) -> None:
    leg = select(route(selection, rate), rank(5))
    unit = UNIT[selection]
    expected = unit * math.floor(N / unit * rate)
    assert (routed(leg).sum(1) == expected).all()
    assert leg.keep_BK.shape == (5, N - expected)
    assert leg.real_BK is None


@pytest.mark.parametrize("selection", ALL)
def test_kept_places_ascend(selection: str) -> None:
    """Scan order and a causal reading survive a route."""
    leg = select(route(selection), rank(7))
    real = [slice(None)] * 7 if leg.real_BK is None else leg.real_BK
    for places, holds in zip(leg.keep_BK, real, strict=True):
        assert (places[holds].diff() > 0).all()


def test_rows_leave_by_first_token() -> None:
    ranks = torch.full((1, 64), 0.5)
    ranks[0, ::8] = torch.tensor([0.9, 0.1, 0.8, 0.2, 0.7, 0.3, 0.6, 0.4])
    ranks[0, 7::8] = torch.tensor([0.1, 0.9, 0.2, 0.8, 0.3, 0.7, 0.4, 0.6])
    rows = routed(select(route("rows", 0.5), ranks)).view(8, 8).all(1)
    assert rows.tolist() == [False, True, False, True, False, True, False, True]


@pytest.mark.parametrize(
    ("rate", "windows"),
    [
        (0.75, {1: 4096}),
        (0.5, {2: 4096}),
        (0.25, {3: 4096}),
        (0.625, {1: 2048, 2: 2048}),
        (0.3, {2: 64 * 12, 3: 64 * 52}),  # 76 of 256 tokens: 64 and 12 more
    ],
)
def test_structured_windows_keep_equal_counts(rate: float, windows: dict[int, int]) -> None:
    """Of 4,096 windows of 2 x 2 tokens in SPRINT's grid of 16 x 16: how many keep so many."""
    kept = ~routed(select(route("structured", rate), rank(64, tokens=256)), tokens=256)
    numbers = kept.view(64, 8, 2, 8, 2).sum(dim=(2, 4)).flatten().tolist()
    assert Counter(numbers) == windows


@pytest.mark.parametrize("selection", ALL)
def test_a_higher_rate_routes_a_superset(selection: str) -> None:
    ranks = rank(6)
    previous = torch.zeros(6, N, dtype=torch.bool)
    for rate in (0.125, 0.3, 0.5, 0.7, 0.9):
        now = routed(select(route(selection, rate), ranks))
        assert (now | ~previous).all()
        assert now.sum() > previous.sum()
        previous = now


@pytest.mark.parametrize("selection", ALL)
def test_every_token_is_routed_equally_often(selection: str) -> None:
    """A chi-square bound over the units: 5 deviations above its mean would be a broken draw."""
    B, rate = 6000, 0.375
    times_N = routed(select(route(selection, rate), rank(B))).double().sum(0)
    units_N = times_N.view(8, 8)[:, 0] if selection == "rows" else times_N
    U = len(units_N)
    share = route(selection, rate).routed(N) / N
    chi = float(((units_N - B * share) ** 2 / (B * share * (1 - share))).sum())
    freedom = U if selection == "bernoulli" else U - 1  # a fixed number binds one
    scale = 1.0 if selection == "bernoulli" else (U - 1) / U
    assert chi * scale < freedom + 5 * math.sqrt(2 * freedom)


@pytest.mark.parametrize("selection", ALL)
def test_samples_are_independent(selection: str) -> None:
    """Two samples share as many routed units as chance has it."""
    B, rate = 4000, 0.5
    pairs = routed(select(route(selection, rate), rank(2 * B))).view(B, 2, N)
    both = float((pairs[:, 0] & pairs[:, 1]).double().mean())
    deviation = math.sqrt(rate**2 * (1 - rate) ** 2 / (N / UNIT[selection]) / B)
    assert abs(both - rate**2) < 5 * deviation
    assert not torch.equal(pairs[0, 0], pairs[1, 0])


def test_bernoulli_numbers_vary_around_the_rate() -> None:
    B, rate = 4000, 0.3
    leg = select(route("bernoulli", rate), rank(B))
    numbers = routed(leg).double().sum(1)
    assert abs(float(numbers.mean()) - rate * N) < 5 * math.sqrt(rate * (1 - rate) * N / B)
    assert float(numbers.var()) == pytest.approx(rate * (1 - rate) * N, rel=0.15)
    assert leg.keep_BK.shape[1] == 64 and int(numbers.min()) == 7  # 57, in sixteens


def test_bernoulli_draws_have_few_lengths() -> None:
    """Every length is compiled anew: 300 batches have one, and without rounding 13."""
    draws = (torch.rand(16, 64, generator=torch.Generator().manual_seed(k)) for k in range(300))
    assert {select(route("bernoulli", 0.5), ranks).keep_BK.shape[1] for ranks in draws} == {48}


def test_bernoulli_never_empties_a_sample() -> None:
    ranks = rank(50, tokens=4) * 0.5
    leg = select(route("bernoulli", 0.9), ranks)
    assert leg.real_BK is not None
    assert (leg.real_BK.sum(1) == 1).all()
    assert torch.equal(leg.keep_BK[leg.real_BK], ranks.argmax(1))


@pytest.mark.parametrize("selection", ALL)
def test_a_plan_is_named_by_its_key(selection: str) -> None:
    routes = (route(selection, end=4), route(selection, start=6))
    keys = [(3, 17), (3, 17), (3, 18), (4, 17)]
    drawn = [draw_routing(routes, (4, N), *key) or () for key in keys]
    first, again, other_step, other_seed = ([routed(leg) for leg in legs] for legs in drawn)
    assert all(map(torch.equal, first, again))
    for other in (other_step[0], other_seed[0], first[1]):
        assert not torch.equal(first[0], other)


def test_dense_batch_drops_the_same_paths() -> None:
    routes = [decode(RouteSpec, "2->5")]
    (routed,) = draw_routing(routes, (64, 16), "key", path_drop=0.5) or ()
    (dense,) = dense_routing(routes, (64, 16), "key", path_drop=0.5) or ()
    assert (dense.start, dense.end) == (routed.start, routed.end) == (2, 5)
    assert routed.dropped_B is not None and dense.dropped_B is not None
    assert torch.equal(dense.dropped_B, routed.dropped_B) and 0 < dense.dropped_B.sum() < 64
    assert torch.equal(dense.keep_BK, torch.arange(16).expand(64, 16))


def test_placement_does_not_change_who_is_routed() -> None:
    here = draw_routing((route("random", start=0, end=3),), (4, N), 3, 17)
    there = draw_routing((route("random", start=5, end=9),), (4, N), 3, 17)
    assert here and there
    assert torch.equal(here[0].keep_BK, there[0].keep_BK)


@pytest.mark.parametrize("l1", [-1.0, -0.5, 0.25, 1.0])
def test_importance_keeps_what_the_first_code_keeps(l1: float) -> None:
    """Its `l1_reg` keeps the lowest of (1 - w) v + w m, with 1 - m where `inverse`; v is 1 - u."""
    x_BND, u_BN = draws.normal((6, N, 8), "tokens"), rank(6)
    m_BN = x_BND.abs().sum(dim=-1)
    low, high = m_BN.min(dim=1, keepdim=True)[0], m_BN.max(dim=1, keepdim=True)[0]
    m_BN = (m_BN - low) / (high - low + 1e-8)
    score_BN = (1 - abs(l1)) * (1 - u_BN) + abs(l1) * (m_BN if l1 < 0 else 1 - m_BN)
    previous = torch.zeros(6, N, dtype=torch.bool)
    for rate in (0.25, 0.5, 0.75):
        spec = decode(RouteSpec, {**vars(route("importance", rate, 0, 0)), "l1": l1})
        leg = select(spec, u_BN)
        run_blocks([lambda x_BKD, *_: 2 * x_BKD], x_BND, torch.zeros(6, 8), routing=(leg,))
        expected_BK = score_BN.argsort(dim=1)[:, : N - spec.routed(N)].sort(dim=1).values
        assert torch.equal(leg.keep_BK, expected_BK)
        assert (routed(leg) | ~previous).all()
        previous = routed(leg)


def test_importance_of_zero_is_a_random_route() -> None:
    by_norm = {"start": 2, "end": 8, "selection": "importance"}
    assert decode(RouteSpec, {**by_norm, "l1": 0}) == route("random")
    with pytest.raises(UserError, match="importance, got"):
        decode(RouteSpec, {**by_norm, "selection": "rows", "l1": 0.5})
