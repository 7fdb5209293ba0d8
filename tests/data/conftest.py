"""Forty small latents with labels, and the tars that hold them."""

from __future__ import annotations

import io
import tarfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

Member = tuple[str, bytes]


def npy(array: np.ndarray) -> bytes:
    buffer = io.BytesIO()
    np.save(buffer, array)
    return buffer.getvalue()


@pytest.fixture
def latents() -> np.ndarray:
    """[40, 4, 8, 8] fp16."""
    return np.random.default_rng(0).normal(size=(40, 4, 8, 8)).astype(np.float16)


@pytest.fixture
def labels() -> np.ndarray:
    return np.arange(40) % 7


@pytest.fixture
def packed(tmp_path: Path, latents: np.ndarray, labels: np.ndarray) -> Path:
    """A folder with latents.npy and labels.npy."""
    folder = tmp_path / "packed"
    folder.mkdir()
    np.save(folder / "latents.npy", latents)
    np.save(folder / "labels.npy", labels)
    return folder


@pytest.fixture
def members(latents: np.ndarray, labels: np.ndarray) -> list[Member]:
    """Name and bytes of all files, as webdataset writes them: the label before the latent."""
    pairs = zip(latents, labels, strict=True)
    return [
        member
        for k, (latent, label) in enumerate(pairs)
        for member in ((f"{k:06d}.cls", b"%d" % label), (f"{k:06d}.latent.npy", npy(latent)))
    ]


@pytest.fixture
def write_tar() -> Callable[[Path, list[Member]], None]:
    def write(path: Path, members: list[Member]) -> None:
        path.parent.mkdir(exist_ok=True)
        with tarfile.open(path, "w", format=tarfile.USTAR_FORMAT) as archive:
            for name, content in members:
                info = tarfile.TarInfo(name)
                info.size = len(content)
                archive.addfile(info, io.BytesIO(content))

    return write


@pytest.fixture
def shards(
    tmp_path: Path, members: list[Member], write_tar: Callable[[Path, list[Member]], None]
) -> Path:
    """A folder with three tars of 15, 15 and 10 samples."""
    folder = tmp_path / "shards"
    for number, start in enumerate((0, 30, 60)):
        write_tar(folder / f"part-{number:02d}.tar", members[start : start + 30])
    return folder
