"""Claims about routes and how tokens get around them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.four_sweeps import same_as_stored
from tread_lab.config import RunSpec, UserError, decode
from tread_lab.config.routes import (
    RouteBypass,
    RouteSpec,
    block_index,
    check_selections,
)
from tread_lab.methods.maskdit.spec import MaskBypass
from tread_lab.methods.mdt.spec import MdtBypass
from tread_lab.methods.sprint.spec import SprintBypass

MODEL = {"depth": 12, "width": 32, "heads": 2}
MASK = {"kind": "mask", "depth": 2, "width": 16, "heads": 2}


def run(**fields: Any) -> RunSpec:
    return decode(RunSpec, {"model": MODEL, "train": {"steps": 100}, **fields})


@pytest.mark.parametrize(
    "fields",
    [
        {"bypass": "sprint"},
        {"bypass": {"re_entry": "v1_sum"}, "routes_until": 0.5},
        {"routes_from": 5, "loss": "both"},
        {"fp32_block": "j"},
        {"routes": [{"start": 2, "end": 8, "rate": 0}]},
        {"bypass": MASK, "routes": [{"start": 0, "end": "B-1", "rate": 0}]},
    ],
)
def test_without_routes_there_is_nothing_to_get_around(fields: dict[str, Any]) -> None:
    dense = run(**{"routes": [], **fields})
    assert dense == run() and (dense.fp32_block, dense.routes_until) == ("off", None)
    assert dense.phases == ((range(100), ()),) and dense.fp32_blocks == set()


def test_weights_are_handed_on_between_bypasses_of_equal_parts() -> None:
    one, two = [RouteSpec(start=0, end=3)], [RouteSpec(start=0, end=4)]
    mask, mdt, sprint = MaskBypass(), MdtBypass(), SprintBypass()
    assert RouteBypass().weights(one) == RouteBypass().weights(two)
    assert mask.weights(one) == MaskBypass(adapter="xavier").weights(one)
    assert mask.weights(one) != MaskBypass(depth=2).weights(one)
    for bypass in (mdt, sprint):
        assert bypass.weights(one) == bypass.weights(list(one))
        assert bypass.weights(one) != bypass.weights(two)
    assert mdt.weights(one) != sprint.weights(one)
    assert SprintBypass(path_drop=0.5).weights(one) == sprint.weights(one)


@pytest.mark.parametrize(
    ("route", "model", "said"),
    [
        ("0->10", MODEL, None),
        ("0->11", MODEL, "needs a block after the route"),
        ("1->9", MODEL, "mdt masks from block 0 on"),
        ("0->2", {"backbone": "rwkv", "depth": 4, "width": 32}, "rwkv has none"),
    ],
)
def test_mdt_masks_from_block_0_and_leaves_a_block(
    route: str, model: dict[str, Any], said: str | None
) -> None:
    written = f"{route} by rows" if "backbone" in model else route
    fields = {"model": model, "routes": [written], "bypass": "mdt"}
    if said is None:
        assert str(run(**fields).routes[0]) == route
        return
    with pytest.raises(UserError, match=said):
        run(**fields)


def routes(*written: object, model: str = "DiT-B/2") -> list[str]:
    return [str(r) for r in decode(RunSpec, {"model": model, "routes": list(written)}).routes]


def test_all_spellings_of_a_route_are_one() -> None:
    spellings = ["2->8", " 2 -> B-4 ", {"start": 2, "end": "B-4"}, {"start": "1/6", "end": "2/3"}]
    assert {tuple(routes(spelling)) for spelling in spellings} == {("2->8",)}


def test_fractions_of_the_depth_round_half_up_and_b_is_the_depth() -> None:
    positions = ("B-4", "B-12", 0, 0.0, "1/6", "2/3", 0.25, "1/8", "1/4", ".5", 1.0, "1/1")
    depths = 2, 5, 10, 12, 28, 34
    lines = [f"{p} of {depths}: {[block_index(p, B) for B in depths]}" for p in positions]
    same_as_stored(Path(__file__).parent / "stored" / "positions.txt", "\n".join(lines) + "\n")


def test_both_ends_are_inclusive_and_counts_are_truncated() -> None:
    route = RouteSpec(start=2, end=8, rate=0.29)
    assert list(route.blocks) == [2, 3, 4, 5, 6, 7, 8]
    assert route.routed(100) == 29 and route.routed(10) == 2


@pytest.mark.parametrize(
    ("written", "said"),
    [
        ("2->8 by rows", {"start": 2, "end": 8, "selection": "rows"}),
        (
            "  1/6  ->  B - 4  by  structured ",
            {"start": 1 / 6, "end": "B - 4", "selection": "structured"},
        ),
        ("-1->.25", {"start": -1, "end": 0.25}),
    ],
)
def test_a_route_in_one_line(written: str, said: dict[str, object]) -> None:
    assert RouteSpec.from_shorthand(written) == said


@pytest.mark.parametrize(
    ("selection", "tokens", "rate", "routed"),
    [
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
    assert route.routed(tokens) == routed
    check_selections([route], tokens, scans=selection == "rows")


def test_routes_may_follow_each_other_at_once_and_end_with_the_network() -> None:
    assert routes("0->5", "6->11") == ["0->5", "6->11"]
    assert routes("3->3") == ["3->3"]
