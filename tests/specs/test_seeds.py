"""Seeds are those of one cell where all other settings are equal, whatever names the plan gives."""

from __future__ import annotations

from typing import Any

import pytest

from tread_lab.config.load import load_experiment
from tread_lab.specs import decode
from tread_lab.specs.cell import Trial
from tread_lab.specs.expansion import expand
from tread_lab.specs.labels import cell_label, with_baseline_cells
from tread_lab.specs.sweep import SweepSpec


def planned(**sweep: Any) -> tuple[Trial, ...]:
    tree = decode(SweepSpec, {"experiment": "tiny", "axes": {"route": ["2->8", "0->4"]}, **sweep})
    return expand(tree, load_experiment("tiny")).trials


@pytest.mark.parametrize(
    ("later", "seeds"),
    [
        ({}, {"dense": [0, 1], "2->8 s=0.5": [0, 1], "0->4 s=0.5": [0, 1]}),
        (
            {"axes": {"route": ["2->8"], "train.weight_decay": [0.0, 0.1]}},  # the first as before
            {
                "dense": [0, 1],
                "dense weight_decay=0.1": [0, 1],
                "2->8 s=0.5 weight_decay=0": [0, 1],
                "2->8 s=0.5 weight_decay=0.1": [0, 1],
                "0->4 s=0.5": [0],
            },
        ),
    ],
)
def test_seeds_of_equal_settings_are_one_cell_under_whichever_axes_they_were_planned(
    later: dict[str, Any], seeds: dict[str, list[int]]
) -> None:
    first, more = planned(), planned(**{"seeds": [0, 1], **later})
    runs = {trial.run for trial in first}
    cells: dict[str, list[int]] = {}
    for trial in with_baseline_cells((*first, *(t for t in more if t.run not in runs))):
        cells.setdefault(cell_label(trial), []).append(trial.seed)
    assert {cell: sorted(own) for cell, own in cells.items()} == seeds
