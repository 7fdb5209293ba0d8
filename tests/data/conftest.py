"""Forty small latents with labels, packed and in tars."""

from __future__ import annotations

import io
import tarfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.made_data import normal, write_arrays
from tests.stand_ins import write_autoencoder, write_images
from tread_lab.config import DataSpec
from tread_lab.data import open_data
from tread_lab.data.stored import Split

Member = tuple[str, bytes]


def npy(array: np.ndarray) -> bytes:
    buffer = io.BytesIO()
    np.save(buffer, array)
    return buffer.getvalue()


LATENTS = normal()
LABELS = np.arange(40) % 7


def members(latents: Iterable[np.ndarray], labels: Iterable[int]) -> tuple[Member, ...]:
    """Name and bytes of all files, as webdataset writes them: the label before the latent."""
    return tuple(
        member
        for k, (latent, label) in enumerate(zip(latents, labels, strict=True))
        for member in ((f"{k:06d}.cls", b"%d" % label), (f"{k:06d}.latent.npy", npy(latent)))
    )


MEMBERS = members(LATENTS, LABELS)
LATENTS.setflags(write=False)
LABELS.setflags(write=False)


def write_tar(path: Path, members: Iterable[Member], *folders: tarfile.TarInfo) -> Path:
    path.parent.mkdir(exist_ok=True)
    with tarfile.open(path, "w", format=tarfile.USTAR_FORMAT) as archive:
        for folder in folders:
            archive.addfile(folder)
        for name, content in members:
            info = tarfile.TarInfo(name)
            info.size = len(content)
            archive.addfile(info, io.BytesIO(content))
    return path


def opened(source: str, path: Path | str, split: Split = "train", **changes: Any) -> Any:
    """Open latents 4x8x8 of seven classes, or what the changes say."""
    fields = {"channels": 4, "size": 8, "classes": 7, **changes}
    return open_data(DataSpec(source=source, path=str(path), **fields), split)


@pytest.fixture
def packed(tmp_path: Path) -> Path:
    """A folder with latents.npy and labels.npy."""
    return write_arrays(tmp_path / "packed", LATENTS)


@pytest.fixture
def shards(tmp_path: Path) -> Path:
    """A folder with three tars of 15, 15 and 10 samples."""
    folder = tmp_path / "shards"
    for number, start in enumerate((0, 30, 60)):
        write_tar(folder / f"part-{number:02d}.tar", MEMBERS[start : start + 30])
    return folder


@pytest.fixture
def images(tmp_path: Path) -> Path:
    """Forty-one PNG images of several sizes."""
    write_images(tmp_path / "images", 41)
    return tmp_path / "images"


@pytest.fixture(scope="session")
def autoencoder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of an autoencoder whose latents are half as high and wide as its images."""
    pytest.importorskip("diffusers")
    folder = tmp_path_factory.mktemp("autoencoder") / "vae"
    write_autoencoder(folder)
    return folder


@pytest.fixture
def pixels() -> np.ndarray:
    """A smooth image with some noise, uint8 [64, 96, 3]."""
    y, x = np.mgrid[0:64, 0:96]
    waves = np.stack([np.sin(x / 7), np.cos(y / 5), np.sin((x + y) / 9)], axis=-1)
    noise = np.random.default_rng(0).normal(0, 10, waves.shape)
    return np.clip(128 + 100 * waves + noise, 0, 255).astype(np.uint8)
