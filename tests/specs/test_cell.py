"""Claims about the names of a cell: routes, depth, tokens, fields, and what is computed."""

from __future__ import annotations

from typing import Any

import pytest

from tread_lab.specs import UserError
from tread_lab.specs.cell import CellNames, has_computed, is_computed, labelled

MODEL = {"depth": 12, "width": 32, "heads": 2, "patch": 4}
TREE = {"model": MODEL, "routes": [{"start": "1/6", "end": "B-4", "rate": 0.25}, "10->11"]}


def names(tree: dict[str, Any], **cell: Any) -> CellNames:
    return CellNames({**TREE, **tree}, cell)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("start", 2),
        ("end", 8),
        ("length", 7),
        ("rate", 0.25),
        ("B", 12),
        ("N", 16),  # 16 x 16 pixels in patches of 4
        ("model.width", 32),
        ("train.batch", 256),
        ("precision", "bf16"),
    ],
)
def test_a_name_means_the_first_route_the_network_or_a_field(name: str, value: Any) -> None:
    assert names({})(name) == value


def test_a_rate_is_one_half_unless_told_and_a_place_needs_a_route() -> None:
    assert names({"routes": ["2->8"]})("rate") == names({"routes": []})("rate") == 0.5
    with pytest.raises(UserError, match="'length' needs a route; add an axis `route`"):
        names({"routes": []})("length")


def test_axes_of_the_cell_come_before_fields_and_facts_before_the_rest() -> None:
    made = CellNames(TREE, {"route.x": 3, "y": "=B // 5"}, {"device": {"gpus": 2}})
    assert [made(name) for name in ("x", "y", "device.gpus")] == [3, 2, 2]
    assert labelled({"route.start": 1, "train.lr": 2}) == {"start": 1, "train.lr": 2}


def test_what_begins_with_an_equals_sign_is_computed() -> None:
    found = [is_computed(value) for value in ("=B", "a=b", "B", 3, ["=B"])]
    assert found == [True, False, False, False, False]
    assert has_computed({"a": [{"b": "=B"}]}) and has_computed(("=B", 1))
    assert not has_computed({"a": [1, "b=B"], "=c": 1}) and not has_computed({})
    assert names({}).settled({"a": ["=B + 1", 2], "b": "x"}) == {"a": [13, 2], "b": "x"}


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("strat", "unknown name 'strat', did you mean 'start'"),
        ("lenght", "unknown name 'lenght', did you mean 'length'"),
        ("seed", "'seed' is no name here"),
    ],
)
def test_an_unknown_name_is_told_with_the_nearest(name: str, said: str) -> None:
    with pytest.raises(UserError, match=said):
        names({})(name)


def test_values_that_need_each_other_are_a_circle() -> None:
    with pytest.raises(UserError, match=r"=train\.batch needs =train\.warmup needs"):
        names({"train": {"warmup": "=train.batch", "batch": "=train.warmup"}})("train.warmup")
