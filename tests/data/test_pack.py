"""Packing: the same samples from every source, with images, mirrored ones, captions, statistics."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from tests.data.conftest import opened
from tests.data.test_folder import repa
from tests.data.test_lightning import files
from tread_lab.cli.data_commands import data_settings
from tread_lab.config import UserError
from tread_lab.data.latents import read_manifest
from tread_lab.data.pack import pack, source_of

__all__ = ["files", "repa"]


def packed_from(path: Path, folder: Path) -> int:
    return len(list(pack(source_of(path), path, folder, batch=16)))


def everything(source: str, path: Path, **changes: Any) -> tuple[torch.Tensor, torch.Tensor]:
    samples = opened(source, path, **changes)
    return samples.take(torch.arange(len(samples)))


def test_tars_are_packed_as_they_are_stored(shards: Path, tmp_path: Path) -> None:
    assert packed_from(shards, tmp_path / "out") == 4
    found = everything("latents", tmp_path / "out", scale=1, decoder_scale=0.18215)
    assert all(map(torch.equal, found, everything("shards", shards)))
    assert packed_from(shards, tmp_path / "out") == 0
    assert not (tmp_path / "out" / ".building").exists()
    settings = data_settings(shards, read_manifest(tmp_path / "out") or {})
    assert (settings["scale"], settings["decoder_scale"]) == (1, 0.18215)


def test_deviation_becomes_a_log_variance(repa: Path, tmp_path: Path) -> None:
    packed_from(repa, tmp_path / "out")
    assert source_of(repa / "vae-sd") == "folder" and source_of(tmp_path / "out") == "latents"
    found = everything("latents", tmp_path / "out")
    assert all(map(torch.equal, found, everything("folder", repa)))
    moments = np.load(tmp_path / "out" / "moments.npy").astype(np.float64)
    assert np.allclose(np.exp(0.5 * moments[:, 4:]), 0.5, atol=1e-3)
    assert np.load(tmp_path / "out" / "images.npy").shape == (40, 3, 16, 16)


def test_mirrored_latents_and_statistics_come_along(files: Path, tmp_path: Path) -> None:
    packed_from(files, tmp_path / "out")
    found = everything("latents", tmp_path / "out", normalise=True)
    assert all(map(torch.equal, found, everything("safetensors", files)))
    plain = np.load(tmp_path / "out" / "latents.npy")
    assert np.allclose(np.load(tmp_path / "out" / "latents_flip.npy"), plain + 100)
    statistics = next(files.glob("*stats*"))
    tensors = torch.load(statistics)
    torch.save({name: 2 * tensor for name, tensor in tensors.items()}, statistics)
    with pytest.raises(UserError, match="or one with digest"):
        packed_from(files, tmp_path / "out")
