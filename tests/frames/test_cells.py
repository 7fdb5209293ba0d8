"""Dense runs in two precisions are two cells; the dense runs of two seeds are one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from tests.synthetic import tiny_spec
from tread_lab.frames import cells_frame, trials_frame
from tread_lab.records.durable import write_json
from tread_lab.records.lab import Lab
from tread_lab.records.status import RunState
from tread_lab.specs import decode, encode
from tread_lab.specs.expansion import expand
from tread_lab.specs.sweep import Experiment, SweepSpec


def sweep(root: Path, axes: dict[str, Any]) -> Lab:
    """A stored plan whose runs have all ended, with their seed as the only number."""
    tree = {"experiment": "tiny", "axes": axes, "seeds": [0, 1]}
    base = Experiment(name="tiny", run=encode(tiny_spec((2, 8))))
    trials = expand(decode(SweepSpec, tree), base).trials
    lab = Lab(root)
    plan = {"format": 1, "name": "s", "evaluate": [], "trials": encode(trials)}
    write_json(lab.sweep("s").plan_path, plan)
    for trial in trials:
        lab.run(trial.run).finish(RunState.COMPLETED, step=1, metrics={"cost/x": float(trial.seed)})
    return lab


def cells(root: Path, axes: dict[str, Any]) -> list[tuple[str, int]]:
    frame = cells_frame(trials_frame(sweep(root, axes), "s"))
    return list(zip(frame["cell"], frame["completed"]))


def test_one_baseline_for_all_cells_is_called_so(tmp_path: Path) -> None:
    found = cells(tmp_path, {"route": ["2->8", "2->6"], "precision": ["bf16"]})
    assert found[0] == ("dense", 2)
    assert len(found) == 3


def test_a_baseline_for_each_value_is_a_cell_for_each(tmp_path: Path) -> None:
    axes = {"precision": ["fp32", "bf16"], "fp32_block": ["off", "j"], "route": ["2->8", "2->6"]}
    found = cells(tmp_path, axes)
    assert found[:2] == [("dense precision=fp32", 2), ("dense precision=bf16", 2)]
    assert len(found) == 2 + 8
    frame = trials_frame(Lab(tmp_path), "s")
    assert list(frame["precision"][:4]) == ["fp32", "bf16"] * 2
    assert frame["route_start"][:4].isna().all()


def test_a_gap_without_readable_losses_has_no_interval() -> None:
    rows = {"run": ["a", "b"], "role": "trial", "cell": ["1->4", "2->8"], "seed": 0}
    rows |= {"state": "completed", "reason": "", "gap/route": [0.5, 0.25]}
    ends = {"gap/route:low": [0.4, np.nan], "gap/route:high": [0.6, np.nan]}
    frame = cells_frame(pd.DataFrame({**rows, **ends, "gap/route:n": [6.0, np.nan]}))
    assert list(frame["gap/route"]) == [0.5, 0.25]
    assert list(frame["gap/route:unit"]) == ["images", ""]
    assert list(frame["gap/route:n"]) == [6, 1]
    assert frame["gap/route:low"][0] == 0.4 and np.isnan(frame["gap/route:low"][1])
