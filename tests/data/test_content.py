"""The digest of what data hold: the same under any path, another for any change of content."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

from tests.data.test_folder import names, write_folder
from tests.made_data import normal, write_arrays
from tread_lab.config import DataSpec, UserError
from tread_lab.data.latents import write_captions
from tread_lab.data.source import check_content, content_digest
from tread_lab.data.statistics import Statistics, write_statistics

SHAPE = {"channels": 4, "size": 8, "classes": 7}


def packed_set(folder: Path) -> DataSpec:
    write_arrays(folder, normal(), heldout=normal(10, seed=1))
    for part, count in (("", 40), ("heldout_", 10)):
        write_captions(folder / f"{part}captions.jsonl", [[f"a {k}"] for k in range(count)])
    write_statistics(folder / "statistics.json", Statistics(np.zeros(4), np.ones(4)))
    return DataSpec(source="latents", path=str(folder), normalise=True, **SHAPE)  # type: ignore[arg-type]


def npz_set(folder: Path) -> DataSpec:
    np.savez(folder / "all.npz", latents=np.zeros((4, 4, 8, 8), "f2"), labels=np.arange(4))
    return DataSpec(source="latents", path=str(folder / "all.npz"), **SHAPE)  # type: ignore[arg-type]


def tars_set(folder: Path) -> DataSpec:
    (folder / "a.tar").write_bytes(b"1")
    (folder / "b.tar").write_bytes(b"2")
    return DataSpec(source="shards", path=str(folder / "*.tar"))


def repa_set(folder: Path) -> DataSpec:
    both = np.ones((4, 8, 8, 8), "f4")
    write_folder(folder / "vae-sd", names("img-mean-std-", ".npy", 4), both, np.arange(4))
    images = np.zeros((4, 3, 16, 16), "u1")
    write_folder(folder / "images", names("img", ".png", 4), images, np.arange(4))
    return DataSpec(source="folder", path=str(folder), **SHAPE)  # type: ignore[arg-type]


def lightning_set(folder: Path) -> DataSpec:
    save_file({"labels": torch.arange(3)}, folder / "0.safetensors")
    write_statistics(folder / "statistics.json", Statistics(np.zeros(4), np.ones(4)))
    return DataSpec(source="safetensors", path=str(folder), **SHAPE)  # type: ignore[arg-type]


SETS: dict[str, tuple[Callable[[Path], DataSpec], tuple[str, ...]]] = {
    "latents": (
        packed_set,
        (
            *("latents.npy", "labels.npy", "captions.jsonl", "statistics.json"),
            *("heldout_latents.npy", "heldout_labels.npy", "heldout_captions.jsonl"),
        ),
    ),
    "npz": (npz_set, ("all.npz",)),
    "shards": (tars_set, ("a.tar", "b.tar")),
    "folder": (
        repa_set,
        (
            *("vae-sd/dataset.json", "images/dataset.json"),
            *("vae-sd/00000/img-mean-std-00000002.npy", "images/00000/img00000003.png"),
        ),
    ),
    "safetensors": (lightning_set, ("0.safetensors", "statistics.json")),
}


@pytest.mark.parametrize("source", SETS)
def test_digest_is_of_content_not_path(source: str, tmp_path: Path) -> None:
    make, decisive = SETS[source]
    (tmp_path / "one").mkdir()
    spec = make(tmp_path / "one")
    first = content_digest(spec)
    assert first is not None and len(first) == 16
    shutil.move(tmp_path / "one", tmp_path / "other")
    assert spec.path is not None
    there = replace(spec, path=spec.path.replace("/one", "/other"))
    assert content_digest(there) == first
    check_content(replace(there, digest=first))
    found = {first}
    for name in decisive:
        file = tmp_path / "other" / name
        original = file.read_bytes()
        if name.endswith("dataset.json"):
            file.write_bytes(original + b" ")
        else:
            file.write_bytes(original[:-1] + bytes([original[-1] ^ 1]))
        changed = content_digest(there)
        with pytest.raises(UserError, match=f"must have the digest .* of the plan, got {changed}"):
            check_content(replace(there, digest=first))
        assert changed not in found
        found.add(changed or "")
        file.write_bytes(original)
    assert content_digest(there) == first
