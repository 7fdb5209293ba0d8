"""Encoding: what is stored is the encoder's, whatever the devices and interruptions."""

from __future__ import annotations

import errno
import hashlib
import itertools
import json
import os
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from tread_lab.data.autoencoder import Encoder
from tread_lab.data.captions import read_captions
from tread_lab.data.latents import read_manifest
from tread_lab.prepare.encode import Stored, encode
from tread_lab.prepare.images import DamagedImage, centre_crop, open_images
from tread_lab.prepare.packed import Steps
from tread_lab.records.durable import DiskFull
from tread_lab.records.locks import Busy
from tread_lab.specs import UserError

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
    """Return the digest of each file; that of the manifest is without times."""
    contents = {path.name: path.read_bytes() for path in sorted(folder.iterdir())}
    timeless = re.compile(rb'"(mtime_ns|crc)": .*')
    return {n: hashlib.sha256(timeless.sub(b"", c)).hexdigest() for n, c in contents.items()}


def test_what_is_stored_is_what_the_autoencoder_gives(
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
    assert manifest["mean"] == pytest.approx(plain.mean.double().mean((0, 2, 3)).tolist(), rel=1e-4)


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


def test_another_setting_is_refused_and_says_which(
    images: Path, tmp_path: Path, autoencoder: Path
) -> None:
    out = tmp_path / "out"
    steps = encoding(images, out, autoencoder)
    next(steps)
    with pytest.raises(Busy, match="out is in use by another process"):
        encoded(images, out, autoencoder)
    steps.close()
    with pytest.raises(UserError, match=r"beginning of a data set with size 16, and 32 is asked"):
        encoded(images, out, autoencoder, size=32)
    (images / "n00000000" / "n00000000_0.png").rename(images / "n00000000" / "other.png")
    with pytest.raises(UserError, match="with other images, labels or captions; choose another"):
        encoded(images, out, autoencoder)
    (images / "n00000000" / "other.png").rename(images / "n00000000" / "n00000000_0.png")
    encoded(images, out, autoencoder)
    with pytest.raises(UserError, match=r"holds a data set with flips False, and True is asked"):
        encoded(images, out, autoencoder, flips=True)
    (tmp_path / "other").mkdir()
    for name in ("latents.npy", "latents_flip.npy", "heldout_labels.npy", "captions.jsonl"):
        (tmp_path / "other" / name).touch()
        with pytest.raises(UserError, match=rf"other holds {name} already"):
            encoded(images, tmp_path / "other", autoencoder)
        (tmp_path / "other" / name).unlink()


def test_images_that_changed_under_their_names_are_not_those_that_were_encoded(
    images: Path, tmp_path: Path, autoencoder: Path
) -> None:
    out, last = tmp_path / "out", images / open_images(images).names[40]
    assert stopped_after(2, images, out, autoencoder).done == 8
    content, times = last.read_bytes(), (last.stat().st_atime_ns, last.stat().st_mtime_ns)
    for holds in ("the beginning of a data set", "a data set"):
        for change in (b"x" + content[1:], content + b"x"):  # of another time; of another size
            last.write_bytes(change)
            os.utime(last, ns=times if len(change) > len(content) else (1, 1))
            with pytest.raises(UserError, match=f"holds {holds} with images whose files may have"):
                encoded(images, out, autoencoder)
        last.write_bytes(content)
        os.utime(last, ns=times)
        encoded(images, out, autoencoder)
    assert encoded(images, out, autoencoder) == 0


def test_damaged_images_stop_it_or_are_left_out_and_named(
    images: Path, tmp_path: Path, autoencoder: Path
) -> None:
    whole, out, again = (tmp_path / name for name in ("whole", "out", "again"))
    encoded(images, whole, autoencoder)
    names, damaged = list(open_images(images).names), "n00000001/n00000001_4.png"
    rows = [json.dumps({"file_name": name, "text": name}) for name in names]
    captions, place = tmp_path / "captions.jsonl", names.index(damaged)
    captions.write_text("\n".join(rows))
    (images / damaged).write_bytes(b"nothing")
    with pytest.raises(DamagedImage, match=r"mend it, or give --skip-damaged, with which the sa"):
        encoded(images, out, autoencoder, captions=captions)
    encoded(images, out, autoencoder, captions=captions, skip_damaged=True)
    assert (out / "damaged.txt").read_text() == f"{damaged}\n"
    kept_names = names[:place] + names[place + 1 :]
    assert read_captions(out / "captions.jsonl") == [(name,) for name in kept_names]
    for name in ("latents", "labels"):
        kept = np.delete(np.load(whole / f"{name}.npy"), place, axis=0)
        assert np.array_equal(np.load(out / f"{name}.npy"), kept)
    manifest = read_manifest(out)
    assert manifest is not None and manifest["damaged"] == 1 and manifest["samples"] == 40
    half = stopped_after(8, images, again, autoencoder, captions=captions, skip_damaged=True)
    assert half.damaged == 1
    encoded(images, again, autoencoder, captions=captions, skip_damaged=True)
    assert digests(again) == digests(out)
    for other in names[1:]:
        (images / other).write_bytes(b"nothing")
    with pytest.raises(UserError, match=r"none: 1 of 41 samples are whole, too few$"):
        encoded(images, tmp_path / "none", autoencoder, skip_damaged=True)


def test_a_full_disk_is_one_line_and_the_same_call_goes_on(
    images: Path, tmp_path: Path, autoencoder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole, out, real = tmp_path / "whole", tmp_path / "out", os.pwrite
    encoded(images, whole, autoencoder)
    writes = itertools.count()

    def full(*arguments: Any) -> int:
        if next(writes) >= 5:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return real(*arguments)

    monkeypatch.setattr(os, "pwrite", full)
    with pytest.raises(DiskFull, match=r"No space left on device; make room and run the same"):
        encoded(images, out, autoencoder)
    monkeypatch.undo()
    encoded(images, out, autoencoder)
    assert digests(whole) == digests(out)


def test_a_wrong_autoencoder_is_one_line(images: Path, tmp_path: Path, autoencoder: Path) -> None:
    text = (autoencoder / "config.json").read_text()
    (tmp_path / "config.json").write_text(text.replace("AutoencoderKL", "UNet2DModel"))
    with pytest.raises(UserError, match="is a UNet2DModel, not an AutoencoderKL"):
        Encoder(str(tmp_path))
    with pytest.raises(UserError, match="needs a multiple of 2"):
        encoded(images, tmp_path / "out", autoencoder, size=15)
