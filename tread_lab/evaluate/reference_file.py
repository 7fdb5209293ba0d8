"""Reads and checks a file of reference statistics as ADM's evaluator takes it (an .npz)."""

# M images, C channels, H height, W width, D features

from __future__ import annotations

import contextlib
import math
import os
import zipfile
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from tread_lab.config.errors import UserError, first_line
from tread_lab.config.metrics import METRICS, ReferenceSpec
from tread_lab.evaluate.fidelity import sha256

VARIABLE = "TREAD_LAB_REFERENCES"
IMAGES = "arr_0"
MOMENTS = {"pool": ("mu", "sigma"), "spatial": ("mu_s", "sigma_s")}
WIDTHS = {"pool": 2048, "spatial": 2023}  # D of Inception's layers
FEWEST = 100  # images that moments or neighbours are computed from

Array = NDArray[np.float64]


@dataclass(frozen=True)
class ReferenceFile:
    """A checked file of reference statistics.

    Attributes:
        name: what the statistics are of.
        moments: layer of Inception -> mean [D] and covariance [D, D], where the file has them.
        shape: (M, H, W, C) of its images; `None` without any.
    """

    name: str
    path: Path
    moments: Mapping[str, tuple[Array, Array]]
    shape: tuple[int, int, int, int] | None

    @property
    def digest(self) -> str:
        """SHA-256 of the file."""
        return sha256(self.path)

    def check_size(self, shape: tuple[int, int, int]) -> None:
        """Refuse images of another shape than (C, H, W)."""
        if self.shape is None:
            return
        _, *sides, channels = self.shape
        if (found := (channels, *sides)) != shape:
            wanted = f"its images must be {list(shape)} as the samples"
            raise _wrong(self.name, self.path, f"{wanted}, got {list(found)}")

    def batches(self, size: int) -> Iterator[NDArray[np.uint8]]:
        """Yield its images in order, uint8 [B, C, H, W], reading `size` of them at a time.

        Raises:
            UserError: their bytes are damaged.
        """
        assert self.shape is not None
        count, *sides = self.shape
        with _reading(self.name, self.path), zipfile.ZipFile(self.path) as file:
            with file.open(f"{IMAGES}.npy") as member:
                _header(member)
                for start in range(0, count, size):
                    rows = min(size, count - start)
                    values = np.frombuffer(member.read(rows * math.prod(sides)), np.uint8)
                    yield values.reshape(rows, *sides).transpose(0, 3, 1, 2).copy()


def reference_path(spec: ReferenceSpec) -> Path:
    """Return the file of a reference: `path`, else in TREAD_LAB_REFERENCES under one of its names.

    Raises:
        UserError: there is none.
    """
    folder = os.environ.get(VARIABLE)
    places = [Path(spec.path).expanduser()] if spec.path else []
    places += [Path(folder).expanduser() / name for name in spec.files] if folder else []
    for place in places:
        if place.is_file():
            return place
    looked = f"no file at {' or '.join(map(str, places))}" if places else "where is it?"
    raise UserError(
        f"reference {spec.name}: {looked}; name the .npz by reference.path, or by {VARIABLE} the"
        f" folder that holds {' or '.join(spec.files)}"
    )


def open_reference(spec: ReferenceSpec, metrics: Collection[str]) -> ReferenceFile:
    """Return the file of a reference, after all of it that metrics need, but the values of its
    images, is checked.

    Moments come from the images where the file has no `mu` at all, as in ADM's evaluator.

    Raises:
        UserError: no such file, or it cannot be what is needed; one line says why.
    """
    path = reference_path(spec)
    comparing = [METRICS[metric] for metric in metrics if METRICS[metric].compares]
    layers: set[str] = {metric.layer for metric in comparing if metric.moments_given}
    with _reading(spec.name, path), np.load(path, allow_pickle=False) as arrays:
        given: set[str] = layers if "mu" in arrays else set()
        moments = {layer: _moments(arrays, layer) for layer in given}
        shape = _image_shape(path) if IMAGES in arrays else None
    seen = layers - given or not all(metric.moments_given for metric in comparing)
    if shape is None and seen:
        raise _wrong(spec.name, path, f"must hold the images {IMAGES}, got none")
    return ReferenceFile(spec.name, path, moments, shape)


def _header(opened: IO[bytes]) -> tuple[tuple[int, ...], bool, np.dtype[Any]]:
    """Return shape, order and type of an array, whose values follow."""
    if np.lib.format.read_magic(opened) == (1, 0):
        return np.lib.format.read_array_header_1_0(opened)
    return np.lib.format.read_array_header_2_0(opened)


def _image_shape(path: Path) -> tuple[int, int, int, int]:
    with zipfile.ZipFile(path) as archive, archive.open(f"{IMAGES}.npy") as member:
        shape, fortran, dtype = _header(member)
        size = archive.getinfo(f"{IMAGES}.npy").file_size - member.tell()
    if dtype != np.uint8 or fortran or size != math.prod(shape):
        raise ValueError(f"{IMAGES} must be uint8 in C's order, got {dtype} {list(shape)}")
    if len(shape) != 4 or shape[3] not in (1, 3) or shape[0] < FEWEST:
        wanted = f"[M, H, W, 3] with M of at least {FEWEST}"
        raise ValueError(f"{IMAGES} must be {wanted}, got {list(shape)}")
    M, H, W, C = shape
    return M, H, W, C


def _moments(arrays: Mapping[str, NDArray[Any]], layer: str) -> tuple[Array, Array]:
    (mu, sigma), D = MOMENTS[layer], WIDTHS[layer]
    if {mu, sigma} - {*arrays}:
        raise ValueError(f"{mu} or {sigma} is absent")
    mean, covariance = arrays[mu], arrays[sigma]
    if mean.shape != (D,) or covariance.shape != (D, D) or mean.dtype.kind != "f":
        found = f"{mean.dtype} {list(mean.shape)}, {list(covariance.shape)}"
        raise ValueError(f"{mu} and {sigma} must be floats [{D}] and [{D}, {D}], got {found}")
    mean, covariance = mean.astype(np.float64), covariance.astype(np.float64)
    largest = np.abs(covariance).max()
    symmetric = np.abs(covariance - covariance.T).max() <= 1e-4 * largest
    if not (symmetric and np.diagonal(covariance).min() >= -1e-6 * largest):  # NaN is neither
        raise ValueError(f"{sigma} must be a covariance, symmetric and finite")
    if not np.isfinite(mean).all():
        raise ValueError(f"{mu} must be finite")
    return mean, covariance


@contextlib.contextmanager
def _reading(name: str, path: Path) -> Iterator[None]:
    """Turn what a wrong or damaged file raises into one line."""
    try:
        yield
    except (zipfile.BadZipFile, OSError, EOFError, ValueError, LookupError) as error:
        raise _wrong(name, path, first_line(error)) from None


def _wrong(name: str, path: Path, reason: str) -> UserError:
    return UserError(f"reference {name}: {path}: {reason}")
