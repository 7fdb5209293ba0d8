"""Claims about trees of runs: `then` makes a child, and each spelling of a field sets the same."""

from __future__ import annotations

from typing import Any

import pytest

from tread_lab.config import RunSpec, UserError
from tread_lab.config.fields import merged, run_of

MODEL = {"depth": 12, "width": 32, "heads": 2}
RUN = {"model": MODEL, "train": {"steps": 100, "batch": 16, "lr": 6e-3}}


def test_then_starts_from_the_run_before() -> None:
    then = {"routes": [], "train": {"steps": 10, "lr": 1e-3}}
    child = run_of({**RUN, "routes": ["2->8"], "then": then})
    assert child.ancestors == (run_of({**RUN, "routes": ["2->8"]}),)
    train = child.train
    assert (child.routes, train.steps, train.lr) == ((), 10, 1e-3)
    assert train.batch == 16  # what `then` does not name stays


@pytest.mark.parametrize(
    ("parent", "child"),
    [
        ({}, {"model": {**MODEL, "depth": 11}}),
        *(({}, {"data": data}) for data in ({"classes": 9}, {"channels": 3}, {"size": 32})),
        *(({}, {"process": process}) for process in ("ddpm", "flow")),
        ({"routes": ["2->9"], "bypass": "sprint"}, {"routes": []}),
        ({"routes": ["2->9"], "bypass": "sprint"}, {"routes": ["1->9"]}),
        ({}, {"routes": ["0->B-1"], "bypass": "mask"}),
    ],
)
def test_weights_of_another_network_are_refused(
    parent: dict[str, Any], child: dict[str, Any]
) -> None:
    with pytest.raises(UserError, match="must train the same network"):
        run_of({**RUN, **parent, "then": child})


FLOW = {"kind": "flow", "direction": 1.0}
S2 = {"backbone": "dit", "depth": 12, "width": 384, "heads": 6, "patch": 2}
LATER = {"start": 4, "end": 6, "rate": 0.25}
TWO = ["0->1", LATER]


@pytest.mark.parametrize(
    ("under", "over", "part"),
    [
        ({"routes": TWO}, {"route.end": 2}, [{"start": 0, "end": 2}, LATER]),
        ({"routes": TWO}, {"route": "1->3"}, [{"start": 1, "end": 3}, LATER]),
        (
            {"routes": TWO},
            {"rate": 0.5},
            [{"start": 0, "end": 1, "rate": 0.5}, {**LATER, "rate": 0.5}],
        ),
        ({}, {"route": "0->1", "routes": ["2->3", LATER]}, [{"start": 0, "end": 1}, LATER]),
        ({}, {"train.lr": 3, "train": {"lr": 1, "steps": 2}}, {"lr": 3, "steps": 2}),
        ({"model": "DiT-S/2"}, {"model.depth": 3}, {**S2, "depth": 3}),
        (
            RUN,
            {"process": "flow", "process.time": "uniform"},
            {"kind": "flow", "time": "uniform"},
        ),
        ({"process": FLOW}, {"process": "flow"}, FLOW),
        (
            {"process": FLOW},
            {"process": {"p_std": 1, "kind": "edm"}},
            {"kind": "edm", "p_std": 1},
        ),
        (
            {"bypass": {"re_entry": "v1_sum"}},
            {"bypass.re_entry.x_D_last": False},
            {"re_entry": {"x_T": True, "x_D_last": False, "coinciding": "once"}},
        ),
    ],
)
def test_field_is_set_in_any_spelling(
    under: dict[str, Any], over: dict[str, Any], part: Any
) -> None:
    heads = {key.partition(".")[0] for key in over}
    (changed,) = {"routes" if head in ("route", "rate") else head for head in heads}
    before = repr(under)
    assert merged(RunSpec, under, over)[changed] == part and repr(under) == before
