"""From a folder of images to a measured sweep by commands, the encoding killed and gone on with."""

from __future__ import annotations

import json
import multiprocessing
import signal
import time
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from tests.data.test_encode import digests
from tests.stand_ins import SCALE, write_autoencoder, write_images
from tread_lab.analysis.figures import catalogue
from tread_lab.analysis.figures.curves import growths
from tread_lab.analysis.figures.samples import equal_seeds
from tread_lab.cli.main import main
from tread_lab.data.content import sha256
from tread_lab.data.pack import UNDER_WAY
from tread_lab.evaluate import fidelity, references
from tread_lab.evaluate.extraction import SPACES
from tread_lab.evaluate.references import MOMENTS

IMAGES = 120
SETTINGS = "--size 16 --posterior moments --flips --images --batch 2 --workers 1 --device cpu"
SWEEP = f"""
question: Does a route help on our images?
experiment: tiny
fixed:
  model: {{depth: 3, width: 16, heads: 2}}
  data: {{source: latents, path: latents, channels: 4, size: 8, classes: 3, decoder_scale: {SCALE}}}
  train: {{steps: 6, batch: 8, lr: 0.03, warmup: 0, schedule: constant, ema: 0.5}}
  execution: {{log_every: 3, checkpoint_every: 6}}
axes: {{route: ["1->1"]}}
evaluate:
  - {{heldout_loss: {{images: 5, levels: 2, at: [2, 4, end]}}}}
  - samples:
      {{metrics: [fid, sfid, is, precision, recall, kid], count: 100, sampler: {{steps: 2}},
       reference: ours.npz, at: [2, 4, end]}}
"""
WIDTHS = {"pool": 12, "spatial": 6}  # of the network that stands in for Inception


def small_inception(images_BCHW: Tensor) -> dict[str, Tensor]:
    """Return features of three layers: averages of quarters of an image, and maps of them."""
    x_BCHW = images_BCHW.double() / 255
    pool_BD = torch.nn.functional.avg_pool2d(x_BCHW, x_BCHW.shape[-1] // 2).flatten(1)
    weights_DK = torch.linspace(-3, 3, 12 * 10, dtype=torch.float64).sin().reshape(12, 10)
    return {"pool": pool_BD, "spatial": pool_BD[:, ::2], "logits": pool_BD @ weights_DK.to(pool_BD)}


def kill_midway(command: str, parts: Path) -> int:
    """Carry out a command in a process of its own; kill it, once five batches are on disk; return
    how many are. The process is a fork: starting Python anew imports diffusers for six seconds."""
    process = multiprocessing.get_context("fork").Process(target=main, args=(command.split(),))
    process.start()
    while process.is_alive() and len([*parts.glob("*.npz")]) < 5:
        time.sleep(0.002)
    process.kill()
    process.join()
    assert process.exitcode == -signal.SIGKILL
    return len([*parts.glob("*.npz")])


@pytest.fixture
def inception_stands_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A small network in Inception's place: the real one takes a minute for these images."""
    weights = tmp_path / "weights.pth"
    weights.write_bytes(b"small")
    monkeypatch.setenv(fidelity.VARIABLE, str(weights))
    monkeypatch.setattr(fidelity, "SHA256", sha256(weights))
    small = replace(SPACES["inception"], open=lambda *_: small_inception)
    monkeypatch.setitem(SPACES, "inception", small)  # type: ignore[arg-type]
    monkeypatch.setattr(references, "WIDTHS", WIDTHS)


def frechet(one: tuple[Any, Any], other: tuple[Any, Any]) -> float:
    """|m - m'|^2 + tr(S + S' - 2 (S S')^(1/2)), the root by its eigenvalues."""
    (mean, covariance), (mean_2, covariance_2) = one, other
    roots = np.sqrt(np.clip(np.linalg.eigvals(covariance @ covariance_2).real, 0, None))
    spread = np.trace(covariance) + np.trace(covariance_2) - 2 * roots.sum()
    return float(((mean - mean_2) ** 2).sum() + spread)


@pytest.fixture
def few_figures(monkeypatch: pytest.MonkeyPatch) -> None:
    """Three of two dozen figures: each takes a second."""
    monkeypatch.setattr(catalogue, "KINDS", (equal_seeds, growths))
    drawn = catalogue.all_figures
    monkeypatch.setattr(catalogue, "all_figures", lambda records: islice(drawn(records), 3))


@pytest.mark.task(39, 40, 51, 53)
@pytest.mark.slow
def test_images_become_a_measured_sweep(
    in_folder: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    inception_stands_in: None,
    few_figures: None,
) -> None:
    pytest.importorskip("diffusers").AutoencoderKL  # noqa: B018 (imported before the fork)
    write_images(in_folder / "images", IMAGES)
    write_autoencoder(in_folder / "vae")

    # encode: a real process, killed and gone on with, gives the bytes of an undisturbed one
    command = f"data encode images latents --autoencoder vae {SETTINGS}"
    done = kill_midway(command, in_folder / "latents" / UNDER_WAY)
    assert 5 <= done < IMAGES / 2
    assert main(command.split()) == 0
    assert main(command.replace("images latents", "images undisturbed").split()) == 0
    assert digests(in_folder / "latents") == digests(in_folder / "undisturbed")
    assert "samples  120\nlatent   [4, 8, 8]\nlabels   3" in capsys.readouterr().out

    # verify, stats
    assert main(["data", "verify", "latents"]) == 0
    capsys.readouterr()
    assert main(["data", "stats", "latents", "--json"]) == 0
    measured = json.loads(capsys.readouterr().out)
    assert (measured["labels"], measured["samples_per_label"]) == (3, [40, 40])
    assert 1 / 3 < measured["deviation"] * SCALE < 3

    # statistics of the real images, a sweep with evaluations at three steps, figures
    command = "data reference images ours.npz --size 16 --device cpu"
    assert main(command.split()) == 0
    (in_folder / "ours.yaml").write_text(SWEEP)
    monkeypatch.setenv("TREAD_LAB_AUTOENCODER", str(in_folder / "vae"))
    swept = ["sweep", "ours.yaml", "--executor", "inline", "--device", "cpu", "--tracker=none"]
    assert main(swept) == 0, capsys.readouterr().err
    lab = in_folder / "lab"
    measured_at = check_metrics(lab, in_folder / "ours.npz")
    assert measured_at == [2, 2, 4, 4, 6, 6]
    drawn = {path.stem for path in (lab / "sweeps" / "ours" / "figures").glob("*.png")}
    assert drawn == {"samples", "over_training-gap-heldout", "over_training-heldout-loss"}

    # more held-out samples than there are is one line
    many = "evaluate=[{heldout_loss: {images: 8}}]"
    again = [*swept, "--name", "again"]
    assert main([*again, many]) == 2
    assert "heldout_loss requires 8 held-out images, got 6. Try {" in capsys.readouterr().err

    # a damaged set is refused by verify, and by the run that would train on it
    array = np.load(in_folder / "latents" / "moments.npy")
    np.save(in_folder / "latents" / "moments.npy", array * np.float16(20))
    assert main(["data", "verify", "latents"]) == 1
    assert "moments.npy: its checksum differs" in capsys.readouterr().out
    assert main([*again, "fixed.train.steps=7"]) == 2
    assert "data: the standard deviation seen by the network" in capsys.readouterr().err


def check_metrics(lab: Path, reference: Path) -> list[int]:
    """Check the metrics of every evaluation of samples by its images; return their steps."""
    steps = []
    with np.load(reference) as held:
        real = {layer: (held[mu], held[sigma]) for layer, (mu, sigma) in MOMENTS.items()}
    for samples in lab.glob("runs/*/evaluations/*/samples.npz"):
        images = np.load(samples)["arr_0"]
        assert images.shape == (100, 16, 16, 3) and images.dtype == np.uint8
        record = json.loads((samples.parent / "metrics.json").read_text())
        metrics, made_with = record["metrics"], record["made_with"]
        decoder, extractor, file = (
            [made_with[name] for name in made_with if name.startswith(what)]
            for what in ("decoder of latents ", "weights inception", "reference ours")
        )
        assert len(*decoder) == 16 and [*map(len, extractor), *map(len, file)] == [64, 64]
        names = {"fid@100", "sfid@100", "is@100", "precision@100", "recall@100", "kid@100"}
        assert metrics.keys() == names
        features = small_inception(torch.from_numpy(images).permute(0, 3, 1, 2))
        for name, layer in {"fid@100": "pool", "sfid@100": "spatial"}.items():
            x_ND = features[layer].numpy()
            ours = x_ND.mean(axis=0), np.cov(x_ND, rowvar=False)
            assert metrics[name] == pytest.approx(frechet(ours, real[layer]), abs=1e-6)
        p_NK = features["logits"].softmax(dim=1).numpy()
        divergence_N = (p_NK * np.log(p_NK / p_NK.mean(axis=0))).sum(axis=1)
        assert metrics["is@100"] == pytest.approx(np.exp(divergence_N.mean()), rel=1e-9)
        assert 0 <= metrics["precision@100"] <= 1 and 0 <= metrics["recall@100"] <= 1
        steps.append(record["step"])
    return sorted(steps)
