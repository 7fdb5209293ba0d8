"""What is removed is what nothing else needs, and what that is stands before it is done."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from tests.sweep.plans import plan_of
from tests.synthetic import Synthetic, tiny_spec, write_sweep
from tread_lab.config import UserError, signature
from tread_lab.config.run import InitSpec
from tread_lab.records.lab import Lab
from tread_lab.sweep.plan import store_plan
from tread_lab.sweep.removal import removal_of, remove

SHARED = {signature(tiny_spec(None, steps=400)), signature(tiny_spec((2, 8), steps=400))}


@pytest.fixture
def lab(tmp_path: Path) -> Lab:
    """Two sweeps that share a baseline and a cell."""
    for name, routes in (("a", ((2, 8), (1, 4))), ("b", ((2, 8), (3, 9)))):
        write_sweep(tmp_path, Synthetic(name=name, routes=routes, seeds=(0,)))
    return Lab(tmp_path)


def test_removal_keeps_runs_others_need(lab: Lab) -> None:
    own = signature(tiny_spec((1, 4), steps=400))
    removal = removal_of(lab, "a")
    assert ([run.name for run in removal.runs], set(removal.kept)) == ([own], SHARED)
    first, second = removal.lines()
    assert first.startswith("a loses its plan and figures and 1 run (")
    assert second == "kept: 2 runs, for sweep b"
    assert lab.sweep("a").plan_path.exists() and lab.run(own).path.exists()
    remove(removal)
    assert lab.sweeps() == ["b"] and not lab.run(own).path.exists()
    assert len(lab.runs()) == 3
    remove(removal_of(lab, "b"))
    assert (lab.sweeps(), lab.runs()) == ([], [])


@pytest.mark.parametrize("by", ["run", "file"])
def test_parent_of_a_run_stays(lab: Lab, by: str) -> None:
    parent = tiny_spec((1, 4), steps=400)
    file = str(
        lab.run_of(parent).checkpoints.resolve() / "step-00000002-0123456789abcdef.safetensors"
    )
    start = InitSpec(run=parent) if by == "run" else InitSpec(file=file, digest="0123456789abcdef")
    child = replace(tiny_spec(None), init_from=start)
    lab.run_of(child).create(child)
    removal = removal_of(lab, "a")
    assert removal.runs == ()
    assert removal.kept[signature(parent)] == [f"run {signature(child)}"]
    store_plan(lab.sweep("c"), plan_of(child, "c", baseline=None, axes={"route": ["1->2"]}))
    shutil.rmtree(lab.run_of(child).path)
    assert removal_of(lab, "a").kept[signature(parent)] == ["sweep c"]


def test_busy_runs_are_not_removed(lab: Lab) -> None:
    run = lab.run(signature(tiny_spec((1, 4), steps=400)))
    for busy in (lab.sweep("a"), run):
        with busy.lock(), pytest.raises(UserError, match=r"in use by another process \(pid "):
            remove(removal_of(lab, "a"))
    lab.sweep("b").plan_path.write_text("{")
    with pytest.raises(UserError, match=r"plan.json: must be JSON"):
        removal_of(lab, "a")
