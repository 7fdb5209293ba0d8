"""Small .npy files: what numpy reads, whatever came before, and the same errors."""

from __future__ import annotations

import zipfile
from pathlib import Path

import numpy as np
import pytest

from tests.data.conftest import npy
from tread_lab.data.npy import read_npy, write_npz

ARRAYS = [
    np.arange(24, dtype=np.float16).reshape(2, 3, 4),
    -np.arange(24, dtype=np.float16).reshape(2, 3, 4),
    np.asfortranarray(np.arange(24, dtype=np.float16).reshape(2, 3, 4)),
    np.asfortranarray(-np.arange(24, dtype=np.float16).reshape(2, 3, 4)),
    np.zeros((2, 3, 4), np.float32),
    np.arange(24, dtype=np.float16).reshape(2, 3, 4),
    np.arange(3.0),
    np.float32(7),
]


def test_every_array_is_what_numpy_reads_in_any_order() -> None:
    for array in (*ARRAYS, *ARRAYS[::-1]):
        found = read_npy(npy(np.asarray(array)))
        assert np.array_equal(found, array) and found.dtype == array.dtype


def test_an_array_of_any_size_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(zipfile, "ZIP64_LIMIT", 1000)  # for 2 GiB
    array = np.arange(24.0).repeat(100)
    write_npz(tmp_path / "a.npz", {"x": (array.shape, array.dtype, [array[:7], array[7:]])})
    assert np.array_equal(np.load(tmp_path / "a.npz")["x"], array)


def test_damaged_content_is_an_error() -> None:
    content = npy(ARRAYS[0])
    read_npy(content)
    for wrong in (content[:-1], content[:40], b"", b"nothing at all", npy(np.array([{}], "O"))):
        with pytest.raises((ValueError, EOFError)):
            read_npy(wrong)
