"""Arrays that are made in parts: whole wherever the process ends, checked where they are read."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from tread_lab.data import resumable
from tread_lab.data.resumable import Array, ResumableArrays
from tread_lab.records.durable import DiskFull

N = 10
ARRAYS = {
    "plain": Array("float16", (2, 3)),
    "labels": Array("int64", ()),
    "bare.f32": Array("float32", (4,), header=False),
}


def arrays_in(folder: Path, **options: Any) -> ResumableArrays:
    return ResumableArrays(folder, {"data": "a"}, ARRAYS, N, rows_per_mark=4, **options)


def content(rows: range) -> dict[str, NDArray[Any]]:
    k = np.array(rows)
    plain = (k[:, None, None] + np.arange(6).reshape(2, 3) / 8).astype(np.float16)
    return {"plain": plain, "labels": k * 7, "bare.f32": np.tile(k[:, None] / 3, 4).astype("f4")}


def filled(folder: Path) -> ResumableArrays:
    arrays = arrays_in(folder)
    arrays.begin("rows")
    for rows in arrays.open_parts(4):
        arrays.write(rows.start, content(rows))
    return arrays


def test_what_is_written_is_read_by_number_and_what_is_missing_is_made(tmp_path: Path) -> None:
    first = arrays_in(tmp_path)
    first.begin("rows")
    first.write(4, content(range(4, 8)))
    again = arrays_in(tmp_path)
    again.begin("rows")
    assert not again.complete and again.open_parts(4) == [range(4), range(8, 10)]
    for rows in again.open_parts(4):
        again.write(rows.start, content(rows))
    assert again.complete and again.open_parts(4) == []
    ids = np.array([9, 0, 4, 4])
    taken, expected = arrays_in(tmp_path).take(ids), content(range(N))
    assert all(np.array_equal(taken[name], expected[name][ids]) for name in ARRAYS)
    assert np.array_equal(np.load(tmp_path / "plain.npy"), expected["plain"])
    assert (tmp_path / "bare.f32").read_bytes() == expected["bare.f32"].tobytes()


@pytest.mark.parametrize("lost", ["plain.npy", "bare.f32", "made_with.json"])
def test_what_has_lost_a_file_is_made_anew(tmp_path: Path, lost: str) -> None:
    filled(tmp_path)
    (tmp_path / lost).unlink()
    arrays = arrays_in(tmp_path)
    arrays.begin("rows")
    assert arrays.stored_fingerprint == {"data": "a"} and len(arrays.open_parts(4)) == 3


def test_what_has_its_room_already_needs_no_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    filled(tmp_path / "full")
    usage = resumable.shutil.disk_usage(tmp_path)._replace(free=100)
    monkeypatch.setattr(resumable.shutil, "disk_usage", lambda path: usage)
    arrays_in(tmp_path / "full").begin("rows")
    with pytest.raises(DiskFull, match=r"10 rows need 360 B more in .*, and 100 B are free"):
        arrays_in(tmp_path / "out").begin("rows")
    assert [*(tmp_path / "out").iterdir()] == []


def test_the_mark_of_a_part_is_written_after_its_rows_are_on_the_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    arrays, synced = arrays_in(tmp_path), []
    arrays.begin("rows")
    name_of = lambda file: Path(f"/proc/self/fd/{file}").readlink().name  # noqa: E731
    monkeypatch.setattr(os, "fsync", lambda file: synced.append(name_of(file)))
    arrays.write(0, content(range(4)))
    assert sorted(synced[:3]) == ["bare.f32", "labels.npy", "plain.npy"]
    assert synced[3:] == ["whole.u8"]
