"""Claims about bypass, loss and route steps in a spec: one run, one spec, one name."""

from __future__ import annotations

from typing import Any

import pytest

from tread_lab.specs import RunSpec, UserError, decode, encode, signature
from tread_lab.specs.bypass import ReEntrySpec, RouteBypass
from tread_lab.specs.routes import RouteSpec
from tread_lab.specs.run import with_old_meaning
from tread_lab.systems.maskdit.spec import MaskBypass
from tread_lab.systems.mdt.spec import MdtBypass
from tread_lab.systems.sprint.spec import SprintBypass

MODEL = {"depth": 12, "width": 32, "heads": 2}
MASK = {"kind": "mask", "depth": 2, "width": 16, "heads": 2}


def run(**fields: Any) -> RunSpec:
    return decode(RunSpec, {"model": MODEL, "train": {"steps": 100}, **fields})


@pytest.mark.parametrize(
    "fields",
    [
        {"bypass": "sprint"},
        {"bypass": MASK, "loss": {"kind": "ensemble"}},
        {"bypass": {"re_entry": "v1_sum"}},
        {"routes_until": 0.5},
        {"bypass": MASK, "routes": [{"start": 0, "end": "B-1", "rate": 0}]},
    ],
)
def test_without_routes_there_is_nothing_to_get_around(fields: dict[str, Any]) -> None:
    assert run(**{"routes": [], **fields}) == run()


@pytest.mark.parametrize(
    "fields",
    [
        {"bypass": "sprint"},
        {"bypass": {"kind": "sprint", "path_drop": 0.2}},
        {"bypass": {"re_entry": "v1_code"}},
        {"loss": "ensemble"},
        {"loss": {"kind": "ensemble", "form": "code"}},
        {"routes_until": 50},
        {"routes_from": 50},
        {"repa": {"block": 3}},
    ],
)
def test_what_changes_the_science_changes_the_name(fields: dict[str, Any]) -> None:
    assert signature(run(routes=["2->8"], **fields)) != signature(run(routes=["2->8"]))
    again = decode(RunSpec, encode(run(routes=["2->8"], **fields)))
    assert again == run(routes=["2->8"], **fields)


def test_where_the_encoder_lies_does_not() -> None:
    here, there = (run(repa={"block": 3, "path": path}) for path in ("here", "there"))
    assert signature(here) == signature(there)


def test_steps_of_routes_are_numbers_or_fractions() -> None:
    assert run(routes=["2->8"], routes_until=0.75).routed_steps == range(75)
    assert run(routes=["2->8"], routes_from=10, routes_until=20).routed_steps == range(10, 20)
    assert run(routes=["2->8"], routes_until=100) == run(routes=["2->8"], routes_until=1.0)
    assert run(routes=["2->8"], routes_until=500) == run(routes=["2->8"])
    assert run(routes=["2->8"], routes_until=0).routed_steps == range(0)
    assert len(run().routed_steps) == 0


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"bypass": MASK, "routes": ["2->8"]}, r"mask covers the whole network.*0->B-1"),
        ({"bypass": "sprint", "routes": ["0->2", "4->6"]}, "sprint needs exactly one route"),
        ({"bypass": "sprnt", "routes": ["2->8"]}, "did you mean 'sprint'"),
        ({"bypass": {"re_entry": "v2"}}, "bypass.re_entry: unknown re-entry 'v2'"),
        ({"loss": {"kind": "ensemble", "weight": -1}}, "loss: weight: must not be negative"),
        ({"routes_until": -1}, "routes_until"),
        ({"routes_until": 1.5}, "routes_until"),
        ({"repa": {"block": 12}}, "repa.block: 12 leaves the network"),
        ({"bypass": {"kind": "mask", "width": 30}}, "bypass: width"),
    ],
)
def test_what_cannot_be_is_refused_with_its_place(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError, match=message):
        run(**fields)


def test_only_what_a_record_leaves_unsaid_has_the_old_meaning() -> None:
    old, new = {"kind": "sprint"}, {"kind": "sprint", "dense_path_drop": 0.2}
    start = {"run": {"bypass": old}, "weights": "ema"}
    assert with_old_meaning({"bypass": new, "init_from": start}) == {
        "bypass": new,
        "init_from": {"run": {"bypass": {**old, "dense_path_drop": 0.0}}, "weights": "ema"},
    }


def test_only_two_terms_can_coincide() -> None:
    for flags in ({"x_T": True, "x_D_last": False}, {"x_T": False, "x_D_last": True}):
        assert ReEntrySpec(**flags, coinciding="twice").coinciding == "once"  # type: ignore[arg-type]
    assert ReEntrySpec(x_T=True, coinciding="twice").coinciding == "twice"


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
        ("0->9", MODEL, None),
        ("0->11", MODEL, "needs a block after the route"),
        ("1->9", MODEL, "mdt masks from block 0 on"),
        ("0->2", {"backbone": "rwkv", "depth": 4, "width": 32}, "rwkv has none"),
        ("0->2", {"backbone": "mamba", "depth": 4, "width": 32}, "mamba has none"),
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
