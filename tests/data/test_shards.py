"""Tars of latents: members with their places, random access, order, damage."""

from __future__ import annotations

import functools
import gzip
import re
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch

from tests.data.conftest import MEMBERS, npy, opened, write_tar
from tread_lab.config import UserError
from tread_lab.data.stored import Split

_open = functools.partial(opened, "shards", scale=0.5)


@pytest.mark.parametrize("split", ["train", "heldout"])
def test_tars_and_arrays_give_equal_samples(shards: Path, packed: Path, split: Split) -> None:
    tars, arrays = _open(shards, split), opened("latents", packed, split, scale=0.5)
    ids = torch.randperm(len(tars), generator=torch.Generator().manual_seed(0))
    assert len(tars) == len(arrays)
    assert all(map(torch.equal, tars.take(ids), arrays.take(ids)))
    assert tars.shape == arrays.shape == (4, 8, 8)
    assert not (tars.flips or arrays.flips)  # neither stores latents of mirrored images


def test_other_members_of_a_tar_are_ignored(tmp_path: Path, shards: Path) -> None:
    extra = [(f"imagenet/{name}", content) for name, content in MEMBERS]
    extra[2:2] = [("imagenet/000000.json", b"{}"), ("README.md", b"hello")]
    extra.append(extra.pop(0))  # a label need not lie beside its latent
    write_tar(tmp_path / "other" / "a.tar", extra)
    ids = torch.arange(38)
    pairs = zip(_open(tmp_path / "other").take(ids), _open(shards).take(ids), strict=True)
    assert all(torch.equal(a, b) for a, b in pairs)


def overwritten(content: bytes) -> bytes:
    """Tarfile takes this place, between two samples, for the end."""
    at = content.index(b"000017.cls") + 100
    return content[:at] + b"x" * 40 + content[at + 40 :]


DAMAGE: dict[str, tuple[Callable[[bytes], bytes], str]] = {
    "cut in a header": (lambda content: content[: 512 * 3 + 100], "it is damaged"),
    "an overwritten header": (overwritten, "it is damaged .*no header at byte"),
    "compressed": (gzip.compress, "or no uncompressed tar"),
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_damaged_tar_is_one_line(shards: Path, damage: str) -> None:
    tar, (change, says) = shards / "part-01.tar", DAMAGE[damage]
    tar.write_bytes(change(tar.read_bytes()))
    with pytest.raises(UserError, match=f"^data.path: {re.escape(str(tar))}: .*{says}") as caught:
        _open(shards)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("000016.latent.npy", npy(np.zeros((8, 8, 4), "f2"))),
        ("000016.latent.npy", npy(np.zeros((4, 8, 8), np.int16))),
        ("000016.cls", b"dog"),
        ("000016.png", b""),
    ],
)
def test_wrong_sample_is_one_line(shards: Path, name: str, content: bytes) -> None:
    kept = dict(MEMBERS[30:60])
    if name not in kept:
        del kept["000016.cls"]
    write_tar(shards / "part-01.tar", list((kept | {name: content}).items()))
    with pytest.raises(UserError, match=r"^data.path: .*part-01.tar: .*$"):
        _open(shards).take(torch.arange(38))
