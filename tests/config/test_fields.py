"""Claims about families: `then` makes a child named after its parent; variants are an axis."""

from __future__ import annotations

from typing import Any

import pytest

from tread_lab.config import RunSpec, UserError, decode, encode, signature
from tread_lab.config.fields import merged, run_of

MODEL = {"depth": 12, "width": 32, "heads": 2}
RUN = {"model": MODEL, "train": {"steps": 100, "batch": 16, "lr": 6e-3}}
THEN = {"routes": [], "train": {"steps": 10, "lr": 1e-3}}


def test_then_is_a_run_that_starts_from_the_run_before() -> None:
    child = run_of({**RUN, "routes": ["2->8"], "then": THEN})
    parent = run_of({**RUN, "routes": ["2->8"]})
    assert child.init_from is not None and child.init_from.run == parent
    assert child.routes == () and child.train.steps == 10 and child.train.lr == 1e-3
    assert child.train.batch == 16  # what `then` does not name stays
    assert child.ancestors == (parent,)


def test_the_childs_name_includes_the_parents_and_nothing_of_its_execution() -> None:
    def child(**parent: Any) -> str:
        start = {"run": encode(decode(RunSpec, {**RUN, **parent}))}
        return signature(decode(RunSpec, {**RUN, "init_from": start}))

    assert child() != signature(decode(RunSpec, RUN))
    assert child(seed=1) != child() != child(train={"steps": 50})
    assert child(execution={"log_every": 7}, data={"path": "elsewhere"}) == child()


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


def test_a_field_of_the_first_route_leaves_the_later_routes_as_they_are() -> None:
    base = {**RUN, "routes": ["0->1", {"start": 4, "end": 6, "rate": 0.25}]}
    later = {"start": 4, "end": 6, "rate": 0.25}
    longer = merged(RunSpec, base, {"route.end": 2})
    assert longer["routes"] == [{"start": 0, "end": 2}, later]
    assert merged(RunSpec, base, {"route": "1->3"})["routes"] == [{"start": 1, "end": 3}, later]
    rated = merged(RunSpec, base, {"rate": 0.5})["routes"]
    assert rated == [{"start": 0, "end": 1, "rate": 0.5}, {**later, "rate": 0.5}]
    assert base["routes"][0] == "0->1"


def test_a_dotted_field_of_what_is_named_changes_that_field_alone() -> None:
    tree = merged(RunSpec, {"model": "DiT-S/2"}, {"model.depth": 3})
    assert tree["model"] == {
        "backbone": "dit", "depth": 3, "width": 384, "heads": 6, "patch": 2
    }  # fmt: skip
    flow = merged(RunSpec, RUN, {"process": "flow", "process.time": "uniform"})["process"]
    assert flow == {"kind": "flow", "time": "uniform"}
    for decay in (0.5, 0):
        ema = merged(RunSpec, {"train": {"ema": decay}}, {"train.ema.halflife": None})["train"][
            "ema"
        ]
        assert ema == {"decay": decay, "halflife": None}
    cut = merged(RunSpec, {"captions": "clip-base"}, {"captions.tokens": 32})["captions"]
    assert cut == {"encoder": "clip-base", "tokens": 32}
    summed = merged(
        RunSpec, {"bypass": {"re_entry": "v1_sum"}}, {"bypass.re_entry.x_D_last": False}
    )
    assert summed["bypass"]["re_entry"] == {"x_T": True, "x_D_last": False, "coinciding": "once"}


def test_a_mapping_keeps_what_it_does_not_name() -> None:
    base = {"process": {"kind": "flow", "direction": 1.0}, "train": {"lr": 1}}
    assert merged(RunSpec, base, {"train": {}, "process": "flow"}) == base
    uniform = merged(RunSpec, base, {"process": {"time": "uniform"}})["process"]
    assert uniform == {"kind": "flow", "direction": 1.0, "time": "uniform"}
    assert merged(RunSpec, base, {"process": {"p_std": 1, "kind": "edm"}})["process"] == {
        "kind": "edm", "p_std": 1,
    }  # fmt: skip
    assert merged(RunSpec, {"process": {"p_std": 2}}, {"process": "edm"})["process"] == {
        "p_std": 2, "kind": "edm",
    }  # fmt: skip


def test_the_rate_is_of_the_routes_wherever_it_is_written() -> None:
    for fixed in ({"rate": 0.75, "routes": ["0->1"]}, {"routes": ["0->1"], "rate": 0.75}):
        tree = merged(RunSpec, {"routes": []}, fixed)
        assert [route["rate"] for route in tree["routes"]] == [0.75]
    first = merged(RunSpec, {}, {"route": "0->1", "routes": ["2->3", "4->5"]})["routes"]
    assert first == [{"start": 0, "end": 1}, {"start": 4, "end": 5}]
    part = merged(RunSpec, {}, {"route.end": 5, "route": "2->8"})["routes"]
    assert part == [{"start": 2, "end": 5}]
    tree = merged(RunSpec, {}, {"train.lr": 3, "train": {"lr": 1, "steps": 2}})
    assert tree == {"train": {"lr": 3, "steps": 2}}
    cell = {"rate": 0.25, "routes": ["0->1"]}
    assert merged(RunSpec, {}, cell)["routes"][0]["rate"] == 0.25
