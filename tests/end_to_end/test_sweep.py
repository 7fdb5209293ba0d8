"""A real sweep through Ray Tune: interrupted, resumed, and the same without Ray."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest
import torch

from tests.faults.drivers import QUIET, STOPPED, Zygote
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


FEW_FIGURES = """
from tread_lab.analysis.figures import catalogue, loss_gap, placements, similarity
catalogue.KINDS = (placements.grids, loss_gap.over_steps, similarity.pair)
"""


@pytest.fixture(scope="module")
def swept(zygote: Zygote, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder in which the sweep has run through Ray, stopped on its way and gone on with.

    SIGTERM comes to the driver, its workers and Ray's daemons alike, as a service manager sends it.
    """
    folder = tmp_path_factory.mktemp("swept")
    (folder / "small.yaml").write_text(SWEEP)
    lab, told = Lab(folder / "lab"), folder / "driver.txt"
    command = ("sweep", "small.yaml", "--concurrent", "1")
    with zygote.start(folder, *command, "--tracker=none", out=told, HOME=str(folder)) as driver:
        driver.until(lambda: len(list(lab.root.glob("runs/*/log.jsonl"))) == 2, 120)
        os.killpg(driver.pid, signal.SIGTERM)
        assert driver.wait(60) == STOPPED, driver.said()
    errors = told.read_text()
    assert "rerun the command to continue" in errors and "Traceback" not in errors
    assert "cluster is lost" not in errors
    states = [run.state() for run in lab.runs()]
    assert "running" not in states and states.count("completed") < 3
    finished = {run.name: len(run.origin()) for run in lab.runs() if run.result()}
    done = zygote.run(folder, *command, prelude=FEW_FIGURES, HOME=str(folder))
    assert done.returncode == 0, done.stderr
    assert finished.items() <= {run.name: len(run.origin()) for run in lab.runs()}.items()
    return folder


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


@pytest.mark.task(4)
def test_interrupted_and_resumed_equals_uninterrupted(
    swept: Path, tmp_path: Path, zygote: Zygote
) -> None:
    """Through Ray, and at once without it: bitwise."""
    (tmp_path / "small.yaml").write_text(SWEEP)
    inline = ("sweep", "small.yaml", "--executor", "inline", "--tracker=none")
    assert zygote.run(tmp_path, *inline, prelude=QUIET, HOME=str(tmp_path)).returncode == 0
    a, b = (Lab(folder / "lab") for folder in (swept, tmp_path))
    assert equal(weights(a), weights(b))
    columns = [metric_names.HELDOUT_LOSS, metric_names.GAP_HELDOUT, "fd[fashion16-v1]@100"]
    first, second = (trials_frame(lab, "small")[columns] for lab in (a, b))
    assert first.equals(second)
