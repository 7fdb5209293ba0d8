"""One label for a cell: its routes, their rate, and every other axis."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tread_lab.config import RunSpec, decode, signature
from tread_lab.config.labels import (
    Trial,
    cell_label,
    run_labels,
)
from tread_lab.config.load import load_sweep
from tread_lab.sweep.expand import expand

MODEL = {"depth": 6, "width": 16, "heads": 2}
SHIPPED = sorted(path.stem for path in Path("sweeps").glob("*.yaml"))
DEVICE = {"device": {"precisions": ["fp32", "tf32", "bf16", "fp16"]}}


def trial(cell: dict[str, Any], role: str = "trial", seed: int = 0, **spec: Any) -> Trial:
    built = decode(RunSpec, {"model": MODEL, "seed": seed, **spec})
    return Trial(role, cell, seed, built, signature(built), None)


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


@pytest.mark.parametrize("name", SHIPPED)
def test_shipped_sweeps_have_distinct_labels(name: str) -> None:
    _, spec, experiment = load_sweep(f"{name}.yaml", [])
    found = expand(spec, experiment, DEVICE, lambda run: run.train.steps)
    labels = run_labels(found.trials)
    assert len(set(labels.values())) == len(labels)
