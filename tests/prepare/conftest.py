"""A folder of made images in three classes, and a small random autoencoder."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.data.conftest import packed, shards
from tests.stand_ins import write_autoencoder, write_images

__all__ = ["packed", "shards"]


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
