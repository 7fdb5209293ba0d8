"""Arrays in files: what numpy reads; batches on disk are skipped, others made anew."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from tests.data.conftest import npy
from tread_lab.config.errors import Unavailable
from tread_lab.data.arrays import Parts, read_npy

ARRAYS = [
    np.arange(24, dtype=np.float16).reshape(2, 3, 4),
    np.asfortranarray(np.arange(24, dtype=np.float16).reshape(2, 3, 4)),
    np.zeros((2, 3, 4), np.float32),
    np.arange(3.0),
    np.float32(7),
]


def test_arrays_are_what_numpy_reads() -> None:
    for array in (*ARRAYS, *ARRAYS[::-1]):
        found = read_npy(npy(np.asarray(array)))
        assert np.array_equal(found, array) and found.dtype == array.dtype


N, BATCH = 10, 4


def parts_in(folder: Path, data: str = "a") -> Parts:
    parts = Parts(folder, {"data": data}, N, BATCH)
    parts.begin()
    return parts


def content(rows: range) -> dict[str, NDArray[Any]]:
    return {"x": np.tile(np.array(rows, np.float16)[:, None], 3), "label": np.array(rows) * 7}


def fill(parts: Parts) -> None:
    for rows in parts.open_batches():
        parts.write(rows, content(rows))


def test_batches_on_disk_are_skipped(tmp_path: Path) -> None:
    parts_in(tmp_path).write(range(4, 8), content(range(4, 8)))
    again = parts_in(tmp_path)
    assert again.open_batches() == [range(4), range(8, 10)] and again.done == 4
    fill(again)
    assert again.open_batches() == [] and again.done == N
    assert np.concatenate([part["label"] for part in again.read()]).tolist() == [*range(0, 70, 7)]


def test_other_content_replaces_the_batches(tmp_path: Path) -> None:
    first = parts_in(tmp_path)
    fill(first)
    assert parts_in(tmp_path, "b").done == 0
    with pytest.raises(Unavailable, match="another process makes these files"):
        first.write(range(4), content(range(4)))
    with pytest.raises(Unavailable, match="another process makes these files"):
        next(first.read())
