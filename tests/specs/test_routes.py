"""Claims about how routes are written, resolved and refused."""

from __future__ import annotations

import pytest

from tread_lab.specs import RunSpec, UserError, decode
from tread_lab.specs.routes import RouteSpec, block_index


def routes(*written: object, model: str = "DiT-B/2") -> list[str]:
    return [str(r) for r in decode(RunSpec, {"model": model, "routes": list(written)}).routes]


def test_all_spellings_of_a_route_are_one() -> None:
    spellings = ["2->8", " 2 -> B-4 ", {"start": 2, "end": "B-4"}, {"start": "1/6", "end": "2/3"}]
    assert {tuple(routes(spelling)) for spelling in spellings} == {("2->8",)}


@pytest.mark.parametrize(("depth", "end"), [(12, 8), (24, 20), (28, 24), (34, 30)])
def test_the_recommended_end_follows_the_depth(depth: int, end: int) -> None:
    assert block_index("B-4", depth) == end


@pytest.mark.parametrize(
    ("fraction", "depth", "block"),
    [
        ("1/6", 12, 2),
        ("2/3", 12, 8),
        ("1/6", 28, 5),
        ("2/3", 28, 19),
        (0.25, 12, 3),
        ("1/8", 12, 2),
    ],
)
def test_fractions_of_the_depth_round_half_up(fraction: str, depth: int, block: int) -> None:
    assert block_index(fraction, depth) == block


@pytest.mark.parametrize(
    ("written", "message"),
    [
        (["2->12"], "leaves the network: blocks are 0..11"),
        (["-1->3"], "leaves the network"),
        (["8->2"], "starts after its end"),
        (["2->6", "6->8"], "must start after 2->6 has ended"),
        (["5->8", "0->2"], "list routes in order"),
        ([{"start": 2, "end": 8, "rate": 1.0}], "outside [0, 1)"),
        ([{"start": 2, "end": 8, "rate": -0.1}], "outside [0, 1)"),
        ([{"start": 1.5, "end": 8}], "a fraction of the depth lies in [0, 1]"),
        ([{"start": "two", "end": 8}], "is not a position"),
    ],
)
def test_invalid_routes_are_refused(written: list, message: str) -> None:
    with pytest.raises(UserError, match=r"routes\[\d\]") as error:
        routes(*written)
    assert message in str(error.value)


def test_a_route_of_rate_zero_is_the_dense_run() -> None:
    from tread_lab.specs import signature

    dense = decode(RunSpec, {"model": "DiT-B/2"})
    zero = decode(RunSpec, {"model": "DiT-B/2", "routes": [{"start": 2, "end": 8, "rate": 0}]})
    assert signature(dense) == signature(zero)


def test_both_ends_are_inclusive_and_counts_are_truncated() -> None:
    route = RouteSpec(start=2, end=8, rate=0.29)
    assert list(route.blocks) == [2, 3, 4, 5, 6, 7, 8]
    assert route.routed(100) == 29 and route.routed(10) == 2
