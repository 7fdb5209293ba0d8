"""LightningDiT's safetensors: samples, mirrored ones, channels normalised, and what is refused."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

from tests.data.conftest import LABELS, LATENTS, opened
from tread_lab.config import DataSpec, UserError
from tread_lab.data.lightning import SafetensorsFiles

MEAN, DEVIATION = [1.0, -2.0, 0.5, 0.0], [2.0, 0.5, 1.0, 4.0]


lightning = functools.partial(opened, "safetensors")


@pytest.fixture
def files(tmp_path: Path) -> Path:
    """Two files of 25 and 15 samples with mirrored latents, and the statistics."""
    for number, rows in enumerate((slice(0, 25), slice(25, 40))):
        tensors = {
            "latents": torch.tensor(LATENTS[rows]).float(),
            "latents_flip": torch.tensor(LATENTS[rows]).float() + 100,
            "labels": torch.tensor(LABELS[rows]),
        }
        save_file(tensors, tmp_path / f"latents_rank00_shard{number:03d}.safetensors")
    statistics = {"mean": torch.tensor(MEAN), "std": torch.tensor(DEVIATION)}
    shaped = {name: values.reshape(1, 4, 1, 1) for name, values in statistics.items()}
    torch.save(shaped, tmp_path / "latents_stats.pt")
    return tmp_path


def test_channels_are_normalised_in_order_of_files(files: Path, packed: Path) -> None:
    plain_NCHW, labels_N = opened("latents", packed).take(torch.arange(38))
    mean, deviation = (torch.tensor(values)[:, None, None] for values in (MEAN, DEVIATION))
    x_NCHW, y_N = lightning(files).take(torch.arange(38))
    assert torch.equal(x_NCHW, (plain_NCHW - mean) / deviation)
    assert torch.equal(y_N, labels_N)
    raw_NCHW, _ = lightning(files, normalise=False).take(torch.arange(38))
    assert torch.equal(raw_NCHW, plain_NCHW)


def test_mirrored_latents_are_of_the_same_images(files: Path) -> None:
    store = SafetensorsFiles(DataSpec(source="safetensors", path=str(files)), "train")
    ids, mirrored = np.arange(38), np.arange(38) % 3 > 0
    added = np.where(mirrored, np.float32(100), np.float32(0))[:, None, None, None]
    assert np.array_equal(store.read(ids, mirrored), store.read(ids) + added)


SHARD = "latents_rank00_shard001.safetensors"
ZEROS, CLASSES = torch.zeros(15, 4, 8, 8), torch.zeros(15, dtype=torch.long)
FLIPPED = {"latents": ZEROS, "latents_flip": ZEROS, "labels": CLASSES}
DAMAGE: dict[str, Any] = {
    "cut": None,
    "no labels": {"latents": ZEROS},
    "another shape": {name: tensor[..., :4] for name, tensor in FLIPPED.items()},
    "whole numbers": {**FLIPPED, "latents": ZEROS.int()},
    "other mirrored": {**FLIPPED, "latents_flip": ZEROS[1:]},
    "not mirrored": {"latents": ZEROS, "labels": CLASSES},
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_damage_is_one_line(files: Path, damage: str) -> None:
    if (tensors := DAMAGE[damage]) is None:
        (files / SHARD).write_bytes((files / SHARD).read_bytes()[:-100])
    else:
        save_file({name: x.contiguous().clone() for name, x in tensors.items()}, files / SHARD)
    with pytest.raises(UserError, match=rf"^data.path: .*{SHARD}: must hold .*$"):
        lightning(files)
