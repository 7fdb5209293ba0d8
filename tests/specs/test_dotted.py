"""Nested settings become leaves under dotted names."""

from __future__ import annotations

from tread_lab.specs.dotted import dotted


def test_leaves_have_dotted_names_and_lists_stay_whole() -> None:
    tree = {"train": {"lr": 1, "ema": {"halflife": 2}}, "routes": [{"start": 2}], "data": {}}
    assert dict(dotted(tree)) == {
        "train.lr": 1,
        "train.ema.halflife": 2,
        "routes": [{"start": 2}],
    }
