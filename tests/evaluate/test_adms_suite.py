"""Images of a run against a file of statistics: every metric of ADM's suite in one pass."""

from __future__ import annotations

import json
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import Tensor

from tests.evaluate.test_formulas import adms_frechet, adms_precision_recall
from tests.train.runs import lab_with_a_run, small_run
from tread_lab.cli import main as cli
from tread_lab.config.metrics import OWN_FEATURES
from tread_lab.records.lab import Lab

Array = NDArray[np.float64]
WIDTHS = {"pool": 24, "spatial": 12}
COUNT = 150
OWN = OWN_FEATURES["fashion16"]
METRICS = ["fid", "sfid", "is", "precision", "recall"]


def project(images_BCHW: Tensor) -> dict[str, Tensor]:
    """Stand in for Inception: fixed random projections of the pixels, in fp32."""
    x = images_BCHW.flatten(1).float() / 255
    random = torch.Generator().manual_seed(0)
    widths = {**WIDTHS, "logits": 10}
    return {
        layer: x @ torch.randn(x.shape[1], width, generator=random).to(x) / 4
        for layer, width in widths.items()
    }


def features(images_NHWC: NDArray[np.uint8]) -> dict[str, Array]:
    found = project(torch.from_numpy(images_NHWC).permute(0, 3, 1, 2))
    return {layer: x.double().numpy() for layer, x in found.items()}


@pytest.fixture(autouse=True)
def seen(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many images each call of the stand-in for Inception describes."""
    pytest.importorskip("torch_fidelity")
    from tread_lab.evaluate import extraction, references

    calls: list[int] = []

    def describe(images_BCHW: Tensor) -> dict[str, Tensor]:
        calls.append(len(images_BCHW))
        return project(images_BCHW)

    stand_in = extraction.Space(lambda: Path(__file__), lambda *_: describe)
    monkeypatch.setitem(extraction.SPACES, "inception", stand_in)  # type: ignore[arg-type]
    monkeypatch.setattr(references, "WIDTHS", WIDTHS)
    monkeypatch.delitem(OWN_FEATURES, "fashion16")  # so that neighbours are Inception's too
    return calls


@pytest.fixture(scope="module")
def unmeasured(tmp_path_factory: pytest.TempPathFactory) -> Lab:
    return lab_with_a_run(tmp_path_factory.mktemp("lab"))


@pytest.fixture
def lab(unmeasured: Lab, tmp_path: Path) -> Lab:
    """A lab with one trained run, which no other test measures."""
    return Lab(shutil.copytree(unmeasured.root, tmp_path / "lab"))


@pytest.fixture(scope="module")
def arrays() -> dict[str, NDArray[Any]]:
    """Statistics of 900 images as a file of ADM's has them, with 200 of these."""
    random = np.random.default_rng(0)
    images = random.integers(0, 256, (900, 16, 16, 1), dtype=np.uint8)
    described = features(images)
    moments = {key: described[layer] for key, layer in (("", "pool"), ("_s", "spatial"))}
    return {
        **{f"mu{key}": x.mean(axis=0) for key, x in moments.items()},
        **{f"sigma{key}": np.cov(x, rowvar=False) for key, x in moments.items()},
        "arr_0": images[:200],
    }


def measured(
    lab: Lab, *options: str, capsys: pytest.CaptureFixture[str], metrics: Sequence[str] = METRICS
) -> dict[str, float]:
    """Run the command and return its metrics."""
    names = [f"{metric}@{COUNT}" for metric in metrics]
    run = lab.run_of(small_run()).name
    command = ["evaluate", run, *names, "--json", "--root", str(lab.root), *options]
    assert cli.main(command) == 0
    (row,) = json.loads(capsys.readouterr().out)
    return {name: value for name, value in row.items() if "@" in name}


@pytest.mark.task(39, 40)
def test_adms_suite_is_measured_in_one_pass(
    lab: Lab,
    arrays: dict[str, NDArray[Any]],
    seen: list[int],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    np.savez(tmp_path / "noise.npz", **arrays)  # type: ignore[arg-type]
    found = measured(lab, "--reference", str(tmp_path / "noise.npz"), capsys=capsys)
    assert sum(seen) == COUNT + 200  # each sample once, each image of the file once
    (place,) = lab.run_of(small_run()).evaluations()
    with np.load(place.path / "samples.npz") as samples:
        own = features(samples["arr_0"])
    near = adms_precision_recall(own["pool"], features(arrays["arr_0"])["pool"])
    moments = {layer: (x.mean(axis=0), np.cov(x, rowvar=False)) for layer, x in own.items()}
    expected = {
        "fid": adms_frechet(moments["pool"], (arrays["mu"], arrays["sigma"])),
        "sfid": adms_frechet(moments["spatial"], (arrays["mu_s"], arrays["sigma_s"])),
        **dict(zip(("precision", "recall"), near)),
    }
    assert list(found) == [f"{metric}@{COUNT} reference=noise" for metric in METRICS]
    found = {name.removesuffix(" reference=noise"): value for name, value in found.items()}
    assert 1 < found[f"is@{COUNT}"] < 10
    for metric, value in expected.items():
        assert found[f"{metric}@{COUNT}"] == pytest.approx(value, rel=1e-6), metric
    record = place.read() or {}
    assert record["spec"]["reference"]["name"] == record["reference"]["name"] == "noise"
    assert len(record["reference"]["sha256"]) == 64 and {*record["extractors"]} == {"inception"}


def test_metric_is_of_its_named_extractor(
    lab: Lab,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setitem(OWN_FEATURES, "fashion16", OWN)
    found = measured(lab, metrics=["fd", "fid"], capsys=capsys)
    names = [f"fd[{OWN}]@{COUNT}", f"fid[heldout]@{COUNT}"]
    assert list(found) == names and len(set(found.values())) == 2
