"""Claims about expressions over the fields of a cell."""

from __future__ import annotations

from typing import Any

import pytest

from tread_lab.config import UserError
from tread_lab.config.cell import labelled
from tread_lab.config.fields import has_computed, is_computed
from tread_lab.sweep.expressions import CellNames, evaluate


def value(text: str) -> Any:
    return evaluate(text, {"B": 12, "start": 2, "model.depth": 12}.__getitem__)


WRITTEN = (
    *("B - start", "-B", "B / 8", "B // 5 * 5 + B % 5", "start < 2 or not B != 12", " B "),
    *("start in [1, 2] and B not in [1, 2]", "round(B / 8) + min(1, 2) + max(3, 4)", "True"),
    *("2 * 4611686018427387904", "-2 * 4611686018427387904", "7 % 4", "7 // 4", "'a' == 'a'"),
    *("1 < 2 != 2", "not 0", "10 * (start or B)", "0 or B and start", "2 <= start < B"),
)


def test_an_expression_has_the_value_that_python_gives_it() -> None:
    for text in WRITTEN:
        assert (value(text), text) == (eval(text.strip(), {"B": 12, "start": 2}), text)
    assert value("2 <= start < model.depth") is True


NOT_ALLOWED = "must compare fields and numbers, got"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        *((text, NOT_ALLOWED) for text in ("B ** 2", "min()", "~B", "B.real()", "B(1)", "[*B]")),
        ("1 / 0", r"^cannot evaluate '1 / 0': division by zero"),
        ("1 < 'a'", r"^cannot evaluate \"1 < 'a'\": '<' not supported"),
        ("1 +", r"^must be an expression, got '1 \+'. Try"),
        ("a\0b", "must be an expression"),
    ],
)
def test_what_cannot_be_computed_is_one_line(text: str, said: str) -> None:
    with pytest.raises(UserError, match=said):
        value(text)


MODEL = {"depth": 12, "width": 32, "heads": 2, "patch": 4}
TREE = {"model": MODEL, "routes": [{"start": "1/6", "end": "B-4", "rate": 0.25}, "10->11"]}


def names(tree: dict[str, Any], **cell: Any) -> CellNames:
    return CellNames({**TREE, **tree}, cell)


def test_a_name_means_the_first_route_the_network_or_a_field() -> None:
    meant = {"start": 2, "end": 8, "length": 7, "rate": 0.25, "B": 12, "model.width": 32}
    meant |= {"N": 16, "train.batch": 256}  # 16 x 16 pixels in patches of 4, a default
    assert {name: names({})(name) for name in meant} == meant


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
        ("seed", "'seed' is no name here"),
    ],
)
def test_an_unknown_name_is_told_with_the_nearest(name: str, said: str) -> None:
    with pytest.raises(UserError, match=said):
        names({})(name)


def test_values_that_need_each_other_are_a_circle() -> None:
    fields = {"warmup": "=train.lr * train.batch", "lr": "=B", "batch": "=train.warmup"}
    with pytest.raises(UserError) as error:
        names({"train": fields})("train.batch")
    assert str(error.value) == "=train.warmup: must not depend on its own value"
