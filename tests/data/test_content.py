"""The digest of what data hold: the same under any path, another for any change of content."""

from __future__ import annotations

import os
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
from tread_lab.data.caption_files import write_captions
from tread_lab.data.content import check_content, content_digest
from tread_lab.data.latents import write_manifest
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
def test_equal_content_under_another_path_is_equal_and_one_changed_byte_is_not(
    source: str, tmp_path: Path
) -> None:
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
        with pytest.raises(UserError, match=f"holds other content .{changed}. than the run was"):
            check_content(replace(there, digest=first))
        assert changed not in found
        found.add(changed or "")
        file.write_bytes(original)
    assert content_digest(there) == first


def test_the_embedded_set_and_statistics_that_nothing_uses_have_no_part(tmp_path: Path) -> None:
    assert content_digest(DataSpec()) is None
    spec = packed_set(tmp_path)
    plain = replace(spec, normalise=False)
    unused = content_digest(plain)
    (tmp_path / "statistics.json").unlink()
    assert content_digest(plain) == unused
    with pytest.raises(UserError, match=r"data.normalise: .* holds no statistics.json"):
        content_digest(spec)


def test_absent_data_are_one_line(tmp_path: Path) -> None:
    for source in ("latents", "shards", "folder", "safetensors"):
        with pytest.raises(UserError, match=r"^data.path: "):
            content_digest(DataSpec(source=source, path=str(tmp_path / "gone")))


def rewritten(path: Path, later: int = 0) -> None:
    """Change a byte of a file, whose size stays, and its time by so many nanoseconds."""
    times, content = path.stat(), path.read_bytes()
    path.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns + later))


def test_a_file_is_read_unless_its_size_and_time_are_those_of_its_manifest(tmp_path: Path) -> None:
    spec, latents = packed_set(tmp_path), tmp_path / "latents.npy"
    first = content_digest(spec)
    write_manifest(tmp_path, {}, [path.name for path in tmp_path.iterdir()])
    rewritten(latents)
    assert content_digest(spec) == first  # it was not read
    for later in (1, -2):
        os.utime(latents, ns=(0, latents.stat().st_mtime_ns + later))
        assert content_digest(spec) not in (None, first)
    os.utime(latents, ns=(0, latents.stat().st_mtime_ns + 1))
    assert content_digest(spec) == first
    (tmp_path / "manifest.json").write_text("damaged")
    assert content_digest(spec) != first


def test_what_had_to_be_read_is_kept_until_a_file_or_its_size_or_time_changes(
    tmp_path: Path,
) -> None:
    (tmp_path / "tars").mkdir()
    spec, cache = tars_set(tmp_path / "tars"), tmp_path / "cache"
    tars = [tmp_path / "tars" / name for name in ("a.tar", "b.tar")]
    for tar in tars:
        os.utime(tar, ns=(1, 1))
    first = content_digest(spec, cache)
    rewritten(tars[1])
    assert content_digest(spec, cache) == first != content_digest(spec)
    rewritten(tars[1], later=1)
    assert content_digest(spec, cache) == first  # of the bytes that lie there again
    rewritten(tars[0], later=1)
    assert content_digest(spec, cache) != first
    tars[0].rename(tmp_path / "tars" / "c.tar")  # equal sizes and times
    assert content_digest(spec, cache) != first
    assert content_digest(spec, cache) == content_digest(spec)
    shutil.copytree(tmp_path / "tars", tmp_path / "v2")  # with the times of the files
    rewritten(tmp_path / "v2" / "b.tar")
    (tmp_path / "tars").rename(tmp_path / "v1")
    (tmp_path / "tars").symlink_to("v2")
    assert content_digest(spec, cache) == content_digest(spec)
