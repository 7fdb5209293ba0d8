"""EDM2's and REPA's folders: the layout they write, posteriors, images, and what is refused."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from tests.data.conftest import LABELS, LATENTS, npy, opened
from tread_lab.config import UserError
from tread_lab.data.folder import LabelledFiles
from tread_lab.data.images import open_images


def write_folder(folder: Path, names: list[str], arrays: np.ndarray, labels: np.ndarray) -> None:
    """Files in the order of their names, and a dataset.json that lists them backwards."""
    for name, array in zip(names, arrays, strict=True):
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if path.suffix == ".npy":
            np.save(path, array)
        else:
            Image.fromarray(array.transpose(1, 2, 0)).save(path)
    rows = [[name, int(label)] for name, label in zip(names, labels, strict=True)][::-1]
    (folder / "dataset.json").write_text(json.dumps({"labels": rows}))


def names(prefix: str, suffix: str, count: int = 40) -> list[str]:
    return [f"{k // 30:05d}/{prefix}{k:08d}{suffix}" for k in range(count)]


@pytest.fixture
def repa(tmp_path: Path) -> Path:
    """REPA's folder: `vae-sd` with mean and deviation 0.5, `images` with PNG files."""
    both = np.concatenate([LATENTS, np.full_like(LATENTS, 0.5)], axis=1)
    write_folder(tmp_path / "vae-sd", names("img-mean-std-", ".npy"), both, LABELS)
    images = np.random.default_rng(1).integers(0, 256, (40, 3, 16, 16), np.uint8)
    write_folder(tmp_path / "images", names("img", ".png"), images, LABELS)
    return tmp_path


def test_folder_gives_the_samples_of_arrays(tmp_path: Path, packed: Path) -> None:
    write_folder(tmp_path / "files", names("img", ".npy"), LATENTS, LABELS)
    ids = torch.arange(38)
    arrays = opened("latents", packed, scale=0.5)
    files = opened("folder", tmp_path / "files", scale=0.5)
    assert len(files) == 38 and files.images(ids) is None
    assert all(map(torch.equal, files.take(ids), arrays.take(ids)))


def test_mean_and_deviation_are_sampled(repa: Path) -> None:
    samples = opened("folder", repa)
    ids = torch.arange(38)
    mean_BCHW, _ = samples.take(ids)
    drawn_BCHW, _ = samples.redraw(ids, 0, "sample", 3)
    assert mean_BCHW.shape == (38, 4, 8, 8)
    assert torch.equal(mean_BCHW[0], torch.from_numpy(LATENTS[0].astype(np.float32)))
    noise_BCHW = (drawn_BCHW - mean_BCHW) / 0.5
    assert abs(float(noise_BCHW.std()) - 1) < 0.03 and abs(float(noise_BCHW.mean())) < 0.03


def test_images_are_in_order_of_latents(repa: Path) -> None:
    samples = opened("folder", repa)
    shown = samples.images(torch.tensor([0, 37]))
    assert shown is not None and shown.shape == (2, 3, 16, 16)
    with Image.open(repa / "images" / "00000" / "img00000000.png") as image:
        assert np.array_equal(shown[0].permute(1, 2, 0).numpy(), np.asarray(image))
    rows = json.loads((repa / "images" / "dataset.json").read_text())["labels"]
    rows[0][1] += 1
    (repa / "images" / "dataset.json").write_text(json.dumps({"labels": rows}))
    with pytest.raises(UserError, match=r"labels in .* must equal those in"):
        opened("folder", repa)


def test_images_of_16_bits_are_refused(tmp_path: Path) -> None:
    levels = np.linspace(0, 65_535, 64).reshape(8, 8).astype(np.uint16)
    (tmp_path / "a").mkdir()
    Image.fromarray(levels).save(tmp_path / "a" / "0.png", "TIFF")
    index = {"labels": [["a/0.png", 0], ["a/0.png", 0]]}
    (tmp_path / "dataset.json").write_text(json.dumps(index))
    for read in (LabelledFiles(tmp_path, "images").image, open_images(tmp_path).open):
        with pytest.raises(UserError, match=r"0.png.*PIL mode .* must have levels"):
            read(0)


INDEX, NAMES = "dataset.json", names("img-mean-std-", ".npy")


@pytest.mark.parametrize(
    ("file", "content"),
    [
        (INDEX, None),
        (INDEX, b'{"labels": null}'),
        (INDEX, b'{"labels": [["00000/img-mean-std-00000000.npy", 0]]}'),
        (INDEX, json.dumps({"labels": [[name, 7] for name in NAMES]}).encode()),
        (NAMES[0], npy(np.zeros((8, 8, 8), np.float16))[:200]),
        (NAMES[0], npy(np.zeros((8, 8, 8), int))),
        (NAMES[33], npy(np.zeros((8, 4, 4), np.float16))),
    ],
)
def test_damage_is_one_line(repa: Path, file: str, content: bytes | None) -> None:
    (repa / "images" / INDEX).unlink()
    (repa / "vae-sd" / file).unlink()
    if content is not None:
        (repa / "vae-sd" / file).write_bytes(content)
    with pytest.raises(UserError, match=r"^data\..*$"):
        opened("folder", repa).take(torch.arange(38))
