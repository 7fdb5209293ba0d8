"""Claims about routes and how tokens get around them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.four_sweeps import same_as_stored
from tread_lab.config import RunSpec, decode
from tread_lab.config.routes import RouteSpec, block_index, check_selections

MODEL = {"depth": 12, "width": 32, "heads": 2}


def run(*routes: Any, **fields: Any) -> RunSpec:
    tree = {"model": MODEL, "train": {"steps": 100}, "routes": list(routes), **fields}
    return decode(RunSpec, tree)


def test_spellings_of_a_route_agree() -> None:
    spellings = ["2->8", " 2 -> B-4 ", {"start": 2, "end": "B-4"}, {"start": "1/6", "end": "2/3"}]
    assert {run(spelling).routes for spelling in spellings} == {(RouteSpec(start=2, end=8),)}
    whole = RouteSpec.from_shorthand("  1/6  ->  B - 4  by  structured ")
    assert whole == {"start": 1 / 6, "end": "B - 4", "selection": "structured"}
    assert RouteSpec.from_shorthand("-1->.25") == {"start": -1, "end": 0.25}
    assert [str(route) for route in run("0->5", "6->11").routes] == ["0->5", "6->11"]
    assert list(run("3->3").routes[0].blocks) == [3]


def test_fractions_of_depth_round_half_up() -> None:
    positions = ("B-4", "B-12", 0, 0.0, "1/6", "2/3", 0.25, "1/8", "1/4", ".5", 1.0, "1/1")
    depths = 2, 5, 10, 12, 28, 34
    lines = [f"{p} of {depths}: {[block_index(p, B) for B in depths]}" for p in positions]
    same_as_stored(Path(__file__).parent / "stored" / "positions.txt", "\n".join(lines) + "\n")


@pytest.mark.parametrize(
    ("selection", "tokens", "rate", "routed"),
    [
        ("random", 100, 0.29, 29),
        ("random", 10, 0.57, 5),
        ("random", 10, 0.7, 7),  # 0.7 * 10 is below 7 in floats
        ("random", 64, 0.999, 63),
        ("rows", 64, 0.3, 16),
        ("rows", 81, 0.7, 54),
        ("structured", 64, 0.75, 48),
        ("bernoulli", 81, 0.3, 24),
    ],
)
def test_routed_tokens_are_whole_units(
    selection: str, tokens: int, rate: float, routed: int
) -> None:
    route = RouteSpec(start=0, end=1, rate=rate, selection=selection)
    assert route.routed(tokens) == routed and list(route.blocks) == [0, 1]
    check_selections([route], tokens, scans=selection == "rows")
