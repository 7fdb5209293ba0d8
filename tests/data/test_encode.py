"""Encoding: what is stored is the encoder's, whatever the devices and interruptions."""

from __future__ import annotations

import itertools
import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from tread_lab.config import UserError
from tread_lab.data.autoencoder import Encoder
from tread_lab.data.content import sha256
from tread_lab.data.encode import Stored, encode
from tread_lab.data.images import DamagedImage, centre_crop, open_images
from tread_lab.data.latents import read_captions, read_manifest
from tread_lab.data.pack import Steps
from tread_lab.records.locks import Busy

CPU = torch.device("cpu")


def encoding(images: Path, folder: Path, autoencoder: Path, /, **changes: Any) -> Any:
    """Begin to encode images of side 16 in parts of four; return the steps to come."""
    opened = open_images(images, changes.pop("captions", None))
    fields = {name: changes.pop(name) for name in [*changes] if hasattr(Stored(), name)}
    stored, options = Stored(**{"size": 16, **fields}), {"devices": [CPU], "batch": 4, **changes}
    return encode(opened, folder, Encoder(str(autoencoder)), stored, **options)


def encoded(*paths: Path, **changes: Any) -> int:
    """Encode to the end; return the number of steps."""
    steps = list(encoding(*paths, **changes))
    assert all(step.total == steps[-1].done for step in steps)
    return len(steps)


def stopped_after(count: int, *paths: Path, **changes: Any) -> Steps:
    """Encode so many parts and stop; return the last step."""
    steps = encoding(*paths, **changes)
    last: Steps = next(itertools.islice(steps, count, None))
    steps.close()
    return last


def digests(folder: Path) -> dict[str, str]:
    """Return the digest of each file."""
    return {path.name: sha256(path) for path in sorted(folder.iterdir())}


def test_stored_is_what_the_autoencoder_gives(
    images: Path, tmp_path: Path, autoencoder: Path
) -> None:
    from diffusers import AutoencoderKL

    out = tmp_path / "out"
    encoded(images, out, autoencoder, posterior="moments", flips=True, images=True, dtype="float32")
    model, opened = AutoencoderKL.from_pretrained(autoencoder).eval(), open_images(images)
    crops = np.stack([centre_crop(opened.open(k), 16) for k in range(41)]).transpose(0, 3, 1, 2)
    x_BCHW = torch.from_numpy(crops / 127.5 - 1).float()
    with torch.no_grad():
        plain, mirrored = (model.encode(x).latent_dist for x in (x_BCHW, x_BCHW.flip(3)))
    moments = np.load(out / "moments.npy")
    assert moments.shape == (41, 8, 8, 8) and moments.dtype == np.float32
    assert np.abs(moments - torch.cat([plain.mean, plain.logvar], 1).numpy()).max() < 1e-5
    assert np.abs(np.load(out / "moments_flip.npy")[:, :4] - mirrored.mean.numpy()).max() < 1e-5
    assert np.array_equal(np.load(out / "images.npy"), crops)
    assert np.load(out / "labels.npy").tolist() == list(opened.labels)
    manifest = read_manifest(out)
    assert manifest is not None and manifest["samples"] == 41 and manifest["latent"] == [4, 8, 8]
    encoder = Encoder(str(autoencoder))
    made = manifest["made_with"]
    assert (made["scale"], made["shift"]) == (encoder.scale, encoder.shift)
    assert made["encoder"] == {"name": "vae", "digest": encoder.digest}


def test_samples_have_the_posteriors_mean_and_deviation(
    images: Path, tmp_path: Path, autoencoder: Path
) -> None:
    from diffusers import AutoencoderKL

    model = AutoencoderKL.from_pretrained(autoencoder)
    with torch.no_grad():
        model.quant_conv.bias[4:] = torch.linspace(-2, 2, 4)  # of the log variances
    model.save_pretrained(tmp_path / "vae")
    for posterior in ("sample", "moments"):
        folder = tmp_path / posterior
        encoded(images, folder, tmp_path / "vae", posterior=posterior, dtype="float32", flips=True)
    noises = []
    for name in ("", "_flip"):
        moments = np.load(tmp_path / "moments" / f"moments{name}.npy").astype(np.float64)
        sampled = np.load(tmp_path / "sample" / f"latents{name}.npy")
        noises.append((sampled - moments[:, :4]) / np.exp(moments[:, 4:] / 2))
        assert abs(noises[-1].mean()) < 0.03 and abs(noises[-1].std() - 1) < 0.03
    assert abs(np.corrcoef(*(noise.ravel() for noise in noises))[0, 1]) < 0.05  # each its own


def test_devices_and_interruptions_change_no_byte(
    images: Path, tmp_path: Path, autoencoder: Path
) -> None:
    whole, several, stopped = (tmp_path / name for name in ("whole", "several", "stopped"))
    encoded(images, whole, autoencoder, posterior="sample")
    encoded(images, several, autoencoder, posterior="sample", devices=[CPU, CPU])
    assert stopped_after(3, images, stopped, autoencoder, posterior="sample").done == 12
    assert encoded(images, stopped, autoencoder, posterior="sample") < 10
    assert digests(whole) == digests(several) == digests(stopped)
    assert encoded(images, whole, autoencoder, posterior="sample") == 0


def test_other_settings_and_images_are_refused(
    images: Path, tmp_path: Path, autoencoder: Path
) -> None:
    out, image = tmp_path / "out", images / "n00000000" / "n00000000_0.png"
    steps = encoding(images, out, autoencoder)
    next(steps)
    with pytest.raises(Busy, match="out is in use by another process"):
        encoded(images, out, autoencoder)
    steps.close()
    for _ in ("begun", "whole"):
        with pytest.raises(UserError, match=r"with size 16, got 32. Try another folder"):
            encoded(images, out, autoencoder, size=32)
        image.rename(image.with_name("other.png"))
        with pytest.raises(UserError, match="with names "):
            encoded(images, out, autoencoder)
        image.with_name("other.png").rename(image)
        times = image.stat().st_atime_ns, image.stat().st_mtime_ns
        os.utime(image, ns=(1, 1))  # written anew
        with pytest.raises(UserError, match="with files "):
            encoded(images, out, autoencoder)
        os.utime(image, ns=times)
        encoded(images, out, autoencoder)
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "heldout_labels.npy").touch()
    with pytest.raises(UserError, match=r"other: must be empty, got heldout_labels.npy"):
        encoded(images, tmp_path / "other", autoencoder)


def test_damaged_images_are_refused_or_named(
    images: Path, tmp_path: Path, autoencoder: Path
) -> None:
    whole, out, again = (tmp_path / name for name in ("whole", "out", "again"))
    encoded(images, whole, autoencoder)
    names, damaged = list(open_images(images).names), "n00000001/n00000001_4.png"
    rows = [json.dumps({"file_name": name, "text": name}) for name in names]
    captions, place = tmp_path / "captions.jsonl", names.index(damaged)
    captions.write_text("\n".join(rows))
    (images / damaged).write_bytes(b"nothing")
    with pytest.raises(DamagedImage, match=r"n00000001_4.png: must be readable.* --skip-damaged"):
        encoded(images, out, autoencoder, captions=captions)
    encoded(images, out, autoencoder, captions=captions, skip_damaged=True)
    assert (out / "damaged.txt").read_text() == f"{damaged}\n"
    kept_names = names[:place] + names[place + 1 :]
    assert read_captions(out / "captions.jsonl") == [(name,) for name in kept_names]
    for name in ("latents", "labels"):
        kept = np.delete(np.load(whole / f"{name}.npy"), place, axis=0)
        assert np.allclose(np.load(out / f"{name}.npy"), kept, atol=2e-3)
    manifest = read_manifest(out)
    assert manifest is not None and manifest["damaged"] == 1 and manifest["samples"] == 40
    half = stopped_after(8, images, again, autoencoder, captions=captions, skip_damaged=True)
    assert half.damaged == 1
    encoded(images, again, autoencoder, captions=captions, skip_damaged=True)
    assert digests(again) == digests(out)
    for other in names[1:]:
        (images / other).write_bytes(b"nothing")
    with pytest.raises(UserError, match=r"none: requires at least 2 undamaged samples, got 1$"):
        encoded(images, tmp_path / "none", autoencoder, skip_damaged=True)
