"""`load_sweep` plans as the command does; runs that the lab has are neither open nor paid for."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from tests.made_data import normal, write_arrays
from tread_lab.config import RunSpec, UserError, decode, encode
from tread_lab.records.lab import Lab
from tread_lab.sweep.plan import check_edit, store_plan
from tread_lab.sweep.planned_sweep import load_sweep

MODEL = {"depth": 2, "width": 16, "heads": 2}


def write_set(folder: Path, seed: int = 0, heldout_seed: int = 1) -> Path:
    return write_arrays(folder, normal(seed=seed), heldout=normal(20, heldout_seed), classes=3)


def run_on(path: Path, **more: object) -> RunSpec:
    data = {"source": "latents", "path": str(path), "channels": 4, "size": 8, "classes": 3}
    return decode(RunSpec, {"model": MODEL, "precision": "fp32", "data": data, **more})


def sweep_on(path: Path, name: str = "s.yaml", **more: object) -> Path:
    file = path.parent / name
    run = encode(run_on(path))
    fixed = {"model": MODEL, "data": run["data"]}
    tree = {"experiment": "tiny", "fixed": fixed, "axes": {"route": ["1->1"]}}
    tree["evaluate"] = [{"heldout_loss": {"images": 20}}]  # all that are held out
    file.write_text(json.dumps({**tree, **more}))
    return file


def test_other_data_share_no_run(lab: Lab, tmp_path: Path) -> None:
    first = load_sweep(str(sweep_on(write_set(tmp_path / "one"))), path=lab.root)
    store_plan(lab.sweep("s"), first.plan)
    other = load_sweep(str(sweep_on(write_set(tmp_path / "other", seed=2))), path=lab.root)
    assert not {t.run for t in first.plan.tasks} & {t.run for t in other.plan.tasks}
    with pytest.raises(UserError, match=r"^--name: "):
        check_edit(lab.sweep("s"), other.plan)
    write_set(tmp_path / "other", seed=0)
    again = load_sweep(str(sweep_on(tmp_path / "other")), path=lab.root)
    assert [t.run for t in again.plan.tasks] == [t.run for t in first.plan.tasks]
    shutil.rmtree(tmp_path / "other")
    absent = load_sweep(str(sweep_on(tmp_path / "other")), path=lab.root)
    assert {t.spec.data.digest for t in absent.plan.tasks} == {None}
