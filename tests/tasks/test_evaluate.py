"""One run is trained once, and measured later as often and as one likes."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from tests.tasks.conftest import DONE, SMALL, Command, attempts, measured
from tread_lab.evaluate.extraction import DINOV2, SPACES
from tread_lab.records.lab import Lab

SAMPLES = "{samples: {metrics: [fd], count: 100, sampler: {steps: 2}}}"


@pytest.fixture(scope="module")
def once(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the lab with the one run is kept."""
    return tmp_path_factory.mktemp("once") / "lab"


@pytest.fixture
def run(once: Path, run_command: Command, lab: Lab) -> str:
    """The signature of a routed run, trained and measured by its first 100 images."""
    if not once.exists():
        done = run_command(f"train {SMALL} --route 1->2", f"evaluate=[{SAMPLES}]")
        assert done.code == DONE, done.err
        shutil.copytree(lab.root, once)
    else:
        shutil.copytree(once, lab.root)
    (trained,) = lab.runs()
    return trained.name


def numbers(row: dict[str, Any]) -> dict[str, float]:
    """The metrics of images in a row of `evaluate --json`."""
    return {name: value for name, value in row.items() if "@" in name}


@pytest.mark.task(33, 41)
def test_a_later_metric_has_the_runs_own_sampler(run: str, run_command: Command, lab: Lab) -> None:
    logs, begun = (lab.run(run).log_path.read_bytes(), attempts(lab))
    done = run_command(f"evaluate {run} kid@100 heldout_loss --json --device cpu")
    assert done.code == DONE, done.err
    row = {name: value for found in done.json for name, value in found.items()}
    assert row["heldout/loss"] > 0
    (name,) = numbers(row)
    assert name.startswith("kid") and name.endswith("@100")
    samplers = [e["spec"]["sampler"]["steps"] for e in measured(lab) if e["spec"].get("metrics")]
    assert sorted(samplers) == [2, 6]  # as planned, and as the experiment draws
    assert (lab.run(run).log_path.read_bytes(), attempts(lab)) == (logs, begun)


GUIDANCES = (
    "1",
    "{weight: 2}",
    "{weight: 2, interval: [0.2, 20]}",
    "{weight: 2, weak: {step: 2}}",
    "{weight: 2, weak: {rate: 0.5}}",
)


@pytest.mark.task(34)
def test_every_guidance_draws_other_images_from_one_run(
    run: str, run_command: Command, lab: Lab
) -> None:
    asked = [
        f"{{samples: {{count: 4, sampler: {{steps: 2, guidance: {guidance}}}}}}}"
        for guidance in GUIDANCES
    ]
    done = run_command(f"evaluate {run}", *asked, "--device", "cpu")
    assert done.code == DONE, done.err
    pictures = []
    for path in lab.root.glob("runs/*/evaluations/*/samples.npz"):
        with np.load(path) as arrays:
            pictures += [arrays["arr_0"].tobytes()] * (len(arrays["arr_0"]) == 4)
    assert len(pictures) == len(asked) and len({*pictures}) == len(asked)
    assert {*attempts(lab).values()} == {1}


@pytest.mark.task(38)
def test_an_export_has_a_card_and_measures_the_same(run: str, run_command: Command) -> None:
    assert run_command(f"export {run} out").code == DONE
    files = {path.name for path in Path("out").iterdir()}
    assert {"model.safetensors", "config.json", "spec.yaml", "README.md"} <= files
    assert run in Path("out/README.md").read_text()
    how = (SAMPLES, "--json", "--device", "cpu")
    found = [run_command(f"evaluate {name}", *how) for name in (run, "out")]
    assert [done.code for done in found] == [DONE, DONE], found
    own, exported = (numbers(done.json[0]) for done in found)
    assert own == pytest.approx(exported) and len(own) == 1


def averages(images_BCHW: Tensor) -> dict[str, Tensor]:
    """Stand in for DINOv2: averages of quarters of an image."""
    x_BCHW = images_BCHW.double() / 255
    return {"pool": torch.nn.functional.avg_pool2d(x_BCHW, x_BCHW.shape[-1] // 2).flatten(1)}


@pytest.mark.task(41)
def test_fd_dinov2_is_measured_by_its_own_features(
    run: str, run_command: Command, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    weights = tmp_path / "dinov2"
    weights.write_bytes(b"small")
    space = replace(SPACES[DINOV2], weights=lambda: weights, open=lambda *_: averages)
    monkeypatch.setitem(SPACES, DINOV2, space)  # type: ignore[arg-type]
    done = run_command(f"evaluate {run} fd_dinov2@100 --json --device cpu")
    assert done.code == DONE, done.err
    (name,) = numbers(done.json[0])
    assert name.startswith("fd_dinov2") and json.loads(done.out)[0][name] > 0
