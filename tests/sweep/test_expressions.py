"""Claims about expressions over the fields of a cell."""

from __future__ import annotations

from typing import Any

import pytest

from tread_lab.config import UserError
from tread_lab.sweep.expressions import CellNames, evaluate


def value(text: str) -> Any:
    return evaluate(text, {"B": 12, "start": 2, "model.depth": 12}.__getitem__)


WRITTEN = (
    *("B - start", "-B", "B / 8", "B // 5 * 5 + B % 5", "start < 2 or not B != 12", " B "),
    *("start in [1, 2] and B not in [1, 2]", "round(B / 8) + min(1, 2) + max(3, 4)", "True"),
    *("2 * 4611686018427387904", "-2 * 4611686018427387904", "7 % 4", "7 // 4", "'a' == 'a'"),
    *("1 < 2 != 2", "not 0", "10 * (start or B)", "0 or B and start", "2 <= start < B"),
)


def test_expression_agrees_with_python() -> None:
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
def test_wrong_expression_is_one_line(text: str, said: str) -> None:
    with pytest.raises(UserError, match=said):
        value(text)


MODEL = {"depth": 12, "width": 32, "heads": 2, "patch": 4}
TREE = {"model": MODEL, "routes": [{"start": "1/6", "end": "B-4", "rate": 0.25}, "10->11"]}


def names(tree: dict[str, Any], **cell: Any) -> CellNames:
    return CellNames({**TREE, **tree}, cell)


def test_names_mean_route_network_or_field() -> None:
    meant = {"start": 2, "end": 8, "length": 7, "rate": 0.25, "B": 12, "model.width": 32}
    meant |= {"N": 16, "train.batch": 256}  # 16 x 16 pixels in patches of 4, a default
    assert {name: names({})(name) for name in meant} == meant


def test_axes_precede_facts_and_fields() -> None:
    made = CellNames(TREE, {"route.x": 3, "y": "=B // 5"}, {"device": {"gpus": 2}})
    assert [made(name) for name in ("x", "y", "device.gpus")] == [3, 2, 2]
    assert names({}).settled({"a": ["=B + 1", 2], "b": "a=b"}) == {"a": [13, 2], "b": "a=b"}


CIRCLE = {"warmup": "=train.lr * train.batch", "lr": "=B", "batch": "=train.warmup"}


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("strat", "unknown name 'strat', did you mean 'start'"),
        ("seed", "must not use seed"),
        ("train.batch", "^=train.warmup: must not depend on its own value"),
    ],
)
def test_name_without_value_is_refused(name: str, said: str) -> None:
    with pytest.raises(UserError, match=said):
        names({"train": CIRCLE})(name)
