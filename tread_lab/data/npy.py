"""Arrays in .npy and .npz files: many small ones read quickly, large ones written in pieces."""

from __future__ import annotations

import functools
import io
import math
import zipfile
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from tread_lab.records.durable import replacing

# An array: its shape, its type, and its values in pieces.
Member = tuple[tuple[int, ...], Any, Iterable[NDArray[Any]]]


def read_npy(content: bytes) -> NDArray[Any]:
    """Return the array of an .npy of format 1.0, which may not be written to.

    Parsing a header takes a third of a millisecond, longer than reading a latent: equal ones are
    parsed once.

    Raises:
        ValueError: it is no whole .npy, or a pickle.
    """
    start = 10 + int.from_bytes(content[8:10], "little")
    shape, fortran, dtype = _header(content[:start])
    values = np.frombuffer(content, dtype, math.prod(shape), start)
    return values.reshape(shape, order="F" if fortran else "C")


@functools.lru_cache(maxsize=64)
def _header(content: bytes) -> tuple[tuple[int, ...], bool, np.dtype[Any]]:
    """Return shape, order and type."""
    file = io.BytesIO(content)
    if np.lib.format.read_magic(file) != (1, 0):
        raise ValueError("an .npy of another version than 1.0")
    shape, fortran, dtype = np.lib.format.read_array_header_1_0(file)
    if dtype.hasobject:
        raise ValueError("an .npy of pickled objects")
    return shape, fortran, dtype


def write_npy(path: Path, *member: Any) -> None:
    """Write an .npy of a shape, a type and values in pieces, of which one is in memory.

    Raises:
        DiskFull: there is no room.
    """
    with replacing(path) as temporary, temporary.open("wb") as file:
        _write(file, *member)


def write_npz(path: Path, members: Mapping[str, Member]) -> None:
    """Write an .npz without compression: 10,000 images take a minute for 7% less space.

    Args:
        members: name -> shape, type, and the values in order, of which one piece is in memory.

    Raises:
        DiskFull: there is no room.
    """
    with replacing(path) as temporary, zipfile.ZipFile(temporary, "w") as archive:
        for name, member in members.items():
            with archive.open(f"{name}.npy", "w", force_zip64=True) as file:
                _write(file, *member)


def _write(
    file: IO[bytes], shape: tuple[int, ...], dtype: Any, pieces: Iterable[NDArray[Any]]
) -> None:
    facts = {"descr": np.lib.format.dtype_to_descr(np.dtype(dtype)), "fortran_order": False}
    np.lib.format.write_array_header_1_0(file, {**facts, "shape": shape})
    for piece in pieces:
        file.write(np.ascontiguousarray(piece, dtype).data)
