"""From a folder of images to a measured run by commands: encode killed and resumed, pack, train."""

from __future__ import annotations

import hashlib
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from tests.made_data import SCALE, write_autoencoder, write_images
from tread_lab.cli import main
from tread_lab.prepare.build import UNDER_WAY

IMAGES = 120
SETTINGS = "--size 16 --posterior moments --flips --images --batch 2 --workers 1 --device cpu"
EXPERIMENT = f"""
model: {{depth: 4, width: 16, heads: 2, patch: 2}}
data: {{source: latents, path: packed, channels: 4, size: 8, classes: 3, decoder_scale: {SCALE}}}
routes: ["1->2"]
precision: fp32
train: {{steps: 6, batch: 8}}
execution: {{checkpoint_every: 3}}
sampler: {{steps: 3}}
evaluate: [{{heldout_loss: {{images: 6}}}}, {{samples: {{count: 9}}}}]
"""


def digests(folder: Path) -> dict[str, str]:
    return {p.name: hashlib.sha256(p.read_bytes()).hexdigest() for p in sorted(folder.iterdir())}


def kill_midway(command: str, marks: Path) -> int:
    """Start a command; kill it, once ten samples are marked; return how many are."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    process = subprocess.Popen(
        [sys.executable, "-m", "tread_lab", *command.split()],
        env=environment,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        while process.poll() is None:
            if marks.exists() and marks.read_bytes().count(1) >= 10:
                break
            time.sleep(0.002)
        process.send_signal(signal.SIGKILL)
    finally:
        process.kill()
        process.wait()
    return marks.read_bytes().count(1)


@pytest.mark.slow
def test_images_become_a_measured_run_by_commands(
    in_folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("diffusers")
    write_images(in_folder / "images", IMAGES)
    write_autoencoder(in_folder / "vae")

    # encode: a real process, killed and gone on with, gives the bytes of an undisturbed one
    command = f"data encode images latents --autoencoder vae {SETTINGS}"
    done = kill_midway(command, in_folder / "latents" / UNDER_WAY / "marks.u8")
    assert 10 <= done < IMAGES
    assert main(command.split()) == 0
    assert main(command.replace("images latents", "images undisturbed").split()) == 0
    assert digests(in_folder / "latents") == digests(in_folder / "undisturbed")
    assert "latents: 120 samples of 4x8x8, 3 labels" in capsys.readouterr().out

    # pack, verify, stats
    assert main(["data", "pack", "latents", "packed"]) == 0
    assert main(["data", "verify", "packed"]) == 0
    assert digests(in_folder / "packed").items() >= {
        (name, digest) for name, digest in digests(in_folder / "latents").items() if ".npy" in name
    }
    capsys.readouterr()
    assert main(["data", "stats", "packed", "--json"]) == 0
    measured = json.loads(capsys.readouterr().out)
    assert measured["counts"] == [40, 40, 40]
    assert 1 / 3 < measured["deviation"] * SCALE < 3

    # train on samples of the posteriors and on mirrored latents, sample, decode
    (in_folder / "latent.yaml").write_text(EXPERIMENT)
    monkeypatch.setenv("TREAD_LAB_AUTOENCODER", str(in_folder / "vae"))
    assert main(["train", "latent.yaml", "--device", "cpu"]) == 0
    (samples,) = (in_folder / "lab").glob("runs/*/evaluations/*/samples.npz")
    images = np.load(samples)["arr_0"]
    assert images.shape == (9, 16, 16, 3) and images.dtype == np.uint8

    # more held-out samples than there are is one line
    many = "evaluate=[{heldout_loss: {images: 8}}]"
    assert main(["train", "latent.yaml", "--device", "cpu", many]) == 2
    assert "heldout_loss of 8 images, and the data hold out 6; write" in capsys.readouterr().err

    # a damaged set is refused by verify, and by the run that would train on it
    array = np.load(in_folder / "packed" / "moments.npy")
    np.save(in_folder / "packed" / "moments.npy", array * np.float16(20))
    assert main(["data", "verify", "packed"]) == 1
    assert "moments.npy: its checksum differs" in capsys.readouterr().out
    assert main(["train", "latent.yaml", "--device", "cpu", "train.steps=7"]) == 2
    assert "the network would see a deviation of" in capsys.readouterr().err
