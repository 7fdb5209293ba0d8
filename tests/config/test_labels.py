"""One label for a cell: its routes, their rate, and every other axis."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tread_lab.config import RunSpec, decode, signature
from tread_lab.config.cell import Trial
from tread_lab.config.labels import (
    cell_label,
    run_labels,
)
from tread_lab.config.load import load_experiment, load_sweep
from tread_lab.config.sweep import SweepSpec
from tread_lab.sweep.expand import expand

MODEL = {"depth": 6, "width": 16, "heads": 2}
SHIPPED = sorted(path.stem for path in Path("sweeps").glob("*.yaml"))
DEVICE = {"device": {"precisions": ["fp32", "tf32", "bf16", "fp16"]}}


def trial(cell: dict[str, Any], role: str = "trial", seed: int = 0, **spec: Any) -> Trial:
    built = decode(RunSpec, {"model": MODEL, "seed": seed, **spec})
    return Trial(role, cell, seed, built, signature(built), None)


def planned(**sweep: Any) -> tuple[Trial, ...]:
    tree = decode(SweepSpec, {"experiment": "tiny", **sweep})
    return expand(tree, load_experiment("tiny")).trials


def route(start: int, end: int, **more: Any) -> dict[str, Any]:
    return {"start": start, "end": end, **more}


BY_ROWS = route(1, 4, selection="rows")


@pytest.mark.parametrize(
    ("cell", "routes", "label"),
    [
        ({}, [], "dense"),
        ({}, [route(0, 1, rate=0.25), route(3, 4, rate=0.25)], "0->1 + 3->4 s=0.25"),
        ({}, [route(0, 1, rate=0.25), route(3, 4)], "0->1 s=0.25 + 3->4 s=0.5"),
        ({"selection": "rows"}, [BY_ROWS], "1->4 by rows s=0.5"),
        ({"start": 1, "end": 4, "rate": 0.0}, [], "1->4 s=0"),
        ({"route": "1->4", "rate": 0}, [], "1->4 s=0"),
        (
            {"start": 1, "end": 4, "precision": "bf16", "train.steps": 100},
            ["1->4"],
            "1->4 s=0.5 precision=bf16 steps=100",
        ),
    ],
)
def test_cell_label_tells_routes_and_axes(
    cell: dict[str, Any], routes: list[Any], label: str
) -> None:
    for start in ({}, {"init_from": {"run": {"model": MODEL, "routes": routes}}}):
        made = trial(cell, routes=routes, **start)
        assert cell_label(made) == cell_label(Trial.read(made.tree())) == label
    as_baseline = f"baseline {label}" if routes else label.replace("1->4 s=0", "dense")
    assert cell_label(trial(cell, "baseline", routes=routes)) == as_baseline


PARENT = "2->8 s=0.5, parent of 2->8 s=0.5 then dense"
THEN = {"then": {"routes": [], "train": {"steps": 10, "warmup": 0}}}


@pytest.mark.parametrize(
    ("sweep", "labels"),
    [
        (
            {"axes": {"precision": ["fp32", "bf16"], "route": ["2->8"]}},
            [
                *("2->8 s=0.5 precision=bf16", "2->8 s=0.5 precision=fp32"),
                *("dense precision=bf16", "dense precision=fp32"),
            ],
        ),
        (
            {
                "axes": {"route": ["2->8"], "train.lr": [0.001, 0.002]},
                "variants": {"f": {"a": THEN}},
                "baseline": None,
            },
            [
                *(f"2->8 s=0.5 then dense f=a lr={lr}" for lr in (0.001, 0.002)),
                *(f"{PARENT} f=a lr={lr}" for lr in (0.001, 0.002)),
            ],
        ),
        (  # runs from which baselines start, too
            {"axes": {"train.lr": [0.001, 0.002]}, "variants": {"f": {"a": THEN}}},
            [
                *("dense lr=0.001", "dense lr=0.002"),
                *("dense, parent of dense lr=0.001", "dense, parent of dense lr=0.002"),
            ],
        ),
        (  # a run that is trial and parent has the label of its trial
            {
                "axes": {"route": ["2->8"]},
                "variants": {"f": {"none": {}, "more": THEN}},
                "baseline": None,
            },
            ["2->8 s=0.5 f=none", "2->8 s=0.5 then dense f=more"],
        ),
    ],
)
def test_run_labels_tell_runs_apart(sweep: dict[str, Any], labels: list[str]) -> None:
    assert sorted(run_labels(planned(**sweep)).values()) == [f"{own} seed 0" for own in labels]


@pytest.mark.parametrize("name", SHIPPED)
def test_shipped_sweeps_have_distinct_labels(name: str) -> None:
    _, spec, experiment = load_sweep(f"{name}.yaml", [])
    found = expand(spec, experiment, DEVICE, lambda run: run.train.steps)
    labels = run_labels(found.trials)
    assert len(set(labels.values())) == len(labels)
