"""A real sweep through Ray Tune: run, run again, interrupt, resume; and the same without Ray."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest
import torch

from tests.faults.drivers import STOPPED, Zygote
from tread_lab.records import metric_names
from tread_lab.records.lab import Lab
from tread_lab.results import trials_frame
from tread_lab.train.checkpoint import load_latest

pytestmark = pytest.mark.slow

SWEEP = """
question: Does a small sweep work from end to end?
experiment: tiny
fixed:
  model: {depth: 4, width: 16}
  train: {steps: 40, batch: 8}
  execution: {log_every: 5, checkpoint_every: 15}
axes: {route: {start: 0..1, end: 1..2}}
where: end - start == 1
evaluate: [{heldout_loss: {images: 32, levels: 4}}, {layer_similarity: {images: 8}}, fd@100]
"""


UNDRAWN = """
from tread_lab.analysis.figures import catalogue
catalogue.write_figures = lambda *arguments, **options: []
"""


@pytest.fixture(scope="module")
def swept(zygote: Zygote, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder in which the sweep has run once through Ray."""
    folder = tmp_path_factory.mktemp("swept")
    (folder / "small.yaml").write_text(SWEEP)
    done = zygote.run(folder, "sweep", "small.yaml", HOME=str(folder))
    assert done.returncode == 0, done.stderr
    return folder


def attempts(lab: Lab) -> dict[str, int]:
    runs = (lab.root / "runs").iterdir()
    return {run.name: len(lab.run(run.name).origin()) for run in runs}


def weights(lab: Lab) -> dict[str, dict[str, torch.Tensor]]:
    found = {run.name: load_latest(run / "checkpoints") for run in (lab.root / "runs").iterdir()}
    return {name: dict(state.tensors) for name, state in found.items() if state}


def equal(a: dict[str, dict[str, torch.Tensor]], b: dict[str, dict[str, torch.Tensor]]) -> bool:
    return a.keys() == b.keys() and all(
        torch.equal(a[run][key], b[run][key]) for run in a for key in a[run]
    )


@pytest.mark.task(56)
def test_sweep_leaves_records_and_figures(swept: Path) -> None:
    lab = Lab(swept / "lab")
    frame = trials_frame(lab, "small")
    assert list(frame["role"]) == ["baseline", "trial", "trial"]
    assert (frame["state"] == "completed").all()
    assert list(frame["route"]) == ["dense", "0->1", "1->2"]
    for column in (metric_names.HELDOUT_LOSS, "fd[fashion16-v1]@100", metric_names.TRAIN_FLOPS):
        assert frame[column].notna().all() and frame[column].nunique() > 1
    gaps = frame[frame["role"] == "trial"]
    assert (gaps["gap/heldout:low"] < gaps["gap/heldout"]).all()
    assert not any(name.startswith("fid") for name in frame.columns)
    figures = {path.name for path in lab.sweep("small").figures.iterdir()}
    grids = {"route_grid-gap-heldout.png", "route_grid-gap-heldout.pdf"}
    assert {*grids, "similarity.png", "gap_over_steps.png"} <= figures
    assert not list((lab.root / "ray").iterdir())


def test_inline_equals_ray_bitwise(swept: Path, tmp_path: Path, zygote: Zygote) -> None:
    (tmp_path / "small.yaml").write_text(SWEEP)
    inline = ("sweep", "small.yaml", "--executor", "inline", "--tracker=none")
    assert zygote.run(tmp_path, *inline, prelude=UNDRAWN, HOME=str(tmp_path)).returncode == 0
    a, b = (Lab(folder / "lab") for folder in (swept, tmp_path))
    assert equal(weights(a), weights(b))
    columns = [metric_names.HELDOUT_LOSS, metric_names.GAP_HELDOUT, "fd[fashion16-v1]@100"]
    first, second = (trials_frame(lab, "small")[columns] for lab in (a, b))
    assert first.equals(second)


@pytest.mark.task(4)
def test_interrupted_and_resumed_equals_uninterrupted(
    swept: Path, tmp_path: Path, zygote: Zygote
) -> None:
    """SIGTERM to the driver, its workers and Ray's daemons alike, as a service manager sends it."""
    (tmp_path / "small.yaml").write_text(SWEEP)
    lab = Lab(tmp_path / "lab")
    told = tmp_path / "driver.txt"
    command = ("sweep", "small.yaml", "--concurrent", "1", "--tracker=none")
    with zygote.start(tmp_path, *command, out=told, HOME=str(tmp_path)) as driver:
        driver.until(lambda: len(list(lab.root.glob("runs/*/log.jsonl"))) == 2, 120)
        os.killpg(driver.pid, signal.SIGTERM)
        assert driver.wait(60) == STOPPED, driver.said()
    errors = told.read_text()
    assert "run the same command again to continue" in errors and "Traceback" not in errors
    assert "cluster is lost" not in errors
    states = [lab.run(path.name).state() for path in (lab.root / "runs").iterdir()]
    assert "running" not in states and states.count("completed") < 3
    finished = {p.name for p in (lab.root / "runs").iterdir() if lab.run(p.name).result()}
    before = attempts(lab)
    again = ("sweep", "small.yaml", "--tracker=none", "--executor", "inline")
    done = zygote.run(tmp_path, *again, prelude=UNDRAWN, HOME=str(tmp_path))
    assert done.returncode == 0, done.stderr
    assert all(attempts(lab)[run] == before[run] for run in finished)
    assert equal(weights(lab), weights(Lab(swept / "lab")))
