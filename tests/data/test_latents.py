"""Packed latents and their manifest: what is read, what is held out, what is refused."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from tests.data.conftest import LABELS, LATENTS, opened
from tread_lab.config import DataSpec, UserError
from tread_lab.data import Samples
from tread_lab.data.latents import PackedArrays, read_captions, write_captions
from tread_lab.data.stored import Split, split_ids

_open = functools.partial(opened, "latents", scale=0.5)


def _all(samples: Samples) -> tuple[torch.Tensor, torch.Tensor]:
    return samples.take(torch.arange(len(samples)))


def test_samples_are_stored_values_times_scale(packed: Path) -> None:
    x_NCHW, labels_N = _all(_open(packed))
    heldout_NCHW, heldout_labels_N = _all(_open(packed, "heldout"))
    assert len(x_NCHW) == 38 and len(heldout_NCHW) == 2
    assert x_NCHW.dtype == torch.float32 and labels_N.dtype == torch.int64
    everything = torch.from_numpy(LATENTS.astype(np.float32)) * 0.5
    for found, label in zip((*x_NCHW, *heldout_NCHW), (*labels_N, *heldout_labels_N), strict=True):
        place = (everything == found).all(dim=(1, 2, 3)).nonzero().item()
        assert label == place % 7


def test_npz_gives_the_samples_of_the_folder(packed: Path, tmp_path: Path) -> None:
    np.savez(tmp_path / "all.npz", latents=LATENTS, labels=LABELS)
    assert all(map(torch.equal, _all(_open(packed)), _all(_open(tmp_path / "all.npz"))))


DAMAGE: dict[str, tuple[str, Any]] = {
    "absent": ("labels", None),
    "cut": ("latents", lambda content: content[: len(content) // 2]),
    "a pickle": ("labels", np.array([{"a": 1}] * 40)),
    "too few": ("labels", np.arange(39)),
    "floats": ("labels", np.zeros(40, np.float32)),
    "whole numbers": ("latents", np.zeros((40, 4, 8, 8), np.int16)),
    "39 images": ("images", np.zeros((39, 3, 4, 4), np.uint8)),
    "39 mirrored": ("latents_flip", np.zeros((39, 4, 8, 8), np.float16)),
    "small mirrored": ("latents_flip", np.zeros((40, 4, 4, 8), np.float16)),
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_damage_is_one_line(packed: Path, damage: str) -> None:
    name, change = DAMAGE[damage]
    path = packed / f"{name}.npy"
    if change is None:
        path.unlink()
    elif callable(change):
        path.write_bytes(change(path.read_bytes()))
    else:
        np.save(path, change, allow_pickle=True)
    with pytest.raises(UserError, match=r"^data.path: .*must") as caught:
        _open(packed)
    message = str(caught.value)
    assert str(packed) in message and "\n" not in message


@pytest.fixture
def parts(tmp_path: Path) -> Path:
    """40 latents of 6 channels whose values are their numbers, 3 held out from 100 on, all beside
    them."""
    for prefix, first, n in (("", 0, 40), ("heldout_", 100, 3)):
        numbers = np.arange(first, first + n)
        latents = np.broadcast_to(numbers[:, None, None, None], (n, 6, 2, 2)).astype(np.float32)
        np.save(tmp_path / f"{prefix}latents.npy", latents)
        np.save(tmp_path / f"{prefix}labels.npy", (numbers % 7).astype(np.uint8))
        images = np.broadcast_to(numbers[:, None, None, None], (n, 3, 4, 4)).astype(np.uint8)
        np.save(tmp_path / f"{prefix}images.npy", images)
        write_captions(tmp_path / f"{prefix}captions.jsonl", [[f"no. {k}"] for k in numbers])
    return tmp_path


def arrays(path: Path, split: Split) -> PackedArrays:
    return PackedArrays(DataSpec(source="latents", path=str(path), channels=6, size=2), split)


def test_held_out_arrays_have_their_own_everything(parts: Path) -> None:
    ids = np.arange(2)
    for split, first, count in (("train", 0, 40), ("heldout", 100, 3), ("all", 0, 40)):
        store = arrays(parts, split)  # type: ignore[arg-type]
        images, captions = store.images(ids), store.captions()
        assert images is not None and captions is not None and len(captions) == count
        assert store.read(ids)[:, 0, 0, 0].tolist() == [first, first + 1]
        assert images[:, 0, 0, 0].tolist() == [first, first + 1]
        assert captions[:2] == [(f"no. {first}",), (f"no. {first + 1}",)]
        assert store.labels[:2].tolist() == [first % 7, (first + 1) % 7]
        assert (store.shape, len(store.labels), store.flips) == ((6, 2, 2), count, False)


def test_images_and_captions_follow_the_split(parts: Path) -> None:
    for name in ("latents", "labels", "images"):
        (parts / f"heldout_{name}.npy").unlink()
    store = arrays(parts, "heldout")
    images = store.images(np.arange(2))
    assert images is not None and images[:, 0, 0, 0].tolist() == [10, 30]
    assert store.captions() == [("no. 10",), ("no. 30",)]
    assert store.read(np.arange(2))[:, 0, 0, 0].tolist() == [10, 30]
    assert store.labels.tolist() == [3, 2]
    assert arrays(parts, "train").read(np.array([9, 10]))[:, 0, 0, 0].tolist() == [9, 11]


def test_mirrored_latents_are_of_the_same_images(packed: Path) -> None:
    np.save(packed / "latents_flip.npy", LATENTS + np.float16(100))
    store = PackedArrays(DataSpec(source="latents", path=str(packed)), "train")
    ids, mirrored = np.arange(38), np.arange(38) % 3 > 0
    places = split_ids(40, "train")
    assert not np.array_equal(places, ids)
    expected = LATENTS[places] + np.where(mirrored, 100, 0).astype(np.float16)[:, None, None, None]
    assert np.array_equal(store.read(ids, mirrored), expected)


def test_captions_are_read_back(tmp_path: Path) -> None:
    path = tmp_path / "captions.jsonl"
    assert read_captions(path) is None
    write_captions(path, [["a dog", "ein Hündchen"], ["two\nlines\u2028"]])
    assert path.read_text(encoding="utf-8").startswith('{"captions": ["a dog", "ein Hündchen"]}\n')
    assert read_captions(path, 2) == [("a dog", "ein Hündchen"), ("two\nlines",)]
    assert read_captions(path / "captions.jsonl") is None  # a single file has none beside it
