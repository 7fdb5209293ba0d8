"""Reads and checks a file of reference statistics as ADM's evaluator takes it (an .npz)."""

# M images, C channels, H height, W width, D features

from __future__ import annotations

import contextlib
import math
import os
import zipfile
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tread_lab.evaluate.fidelity import sha256
from tread_lab.specs.errors import UserError, first_line
from tread_lab.specs.metrics import METRICS, ReferenceSpec

VARIABLE = "TREAD_LAB_REFERENCES"
IMAGES = "arr_0"
MOMENTS = {"pool": ("mu", "sigma"), "spatial": ("mu_s", "sigma_s")}
WIDTHS = {"pool": 2048, "spatial": 2023}  # D of Inception's layers
FEWEST = 100  # images that moments or neighbours are computed from

Array = NDArray[np.float64]


class _Header(NamedTuple):
    """What stands in front of an array: its shape, its order and its type, without its values."""

    shape: tuple[int, ...]
    fortran: bool
    dtype: np.dtype[Any]


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
        if self.shape is not None and (self.shape[3], *self.shape[1:3]) != shape:
            ours, theirs = _size(shape), _size((self.shape[3], *self.shape[1:3]))
            raise _wrong(self, f"its images are {theirs}, and the samples {ours}")

    def batches(self, size: int) -> Iterator[NDArray[np.uint8]]:
        """Yield its images in order, uint8 [B, C, H, W], reading `size` of them at a time.

        Raises:
            UserError: their bytes are damaged.
        """
        assert self.shape is not None
        count, *sides = self.shape
        with _reading(self), zipfile.ZipFile(self.path) as file:
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
    (layers, images), (file, held) = _needs(metrics), _without_values(spec)
    given = "mu" in held
    if file.shape is None and (images or (layers and not given)):
        raise _wrong(file, f"it lacks {IMAGES}, the images" + ("" if given else ", and mu too"))
    wanted = layers if given else ()
    return replace(file, moments={layer: _moments(file, held, layer) for layer in wanted})


def described_images(spec: ReferenceSpec, metrics: Collection[str]) -> int:
    """Return how many images of a reference metrics look at; none where its moments are enough.

    Raises:
        UserError: no such file, or one that is damaged.
    """
    (layers, images), (file, held) = _needs(metrics), _without_values(spec)
    looked_at = images or (layers and "mu" not in held)
    return file.shape[0] if looked_at and file.shape is not None else 0


def _needs(metrics: Collection[str]) -> tuple[set[str], bool]:
    """Return the layers of Inception whose moments metrics need, and whether they need images in
    any case, as for neighbours."""
    comparing = [METRICS[metric] for metric in metrics if METRICS[metric].compares]
    by_moments = [metric for metric in comparing if metric.moments_given]
    return {metric.layer for metric in by_moments}, len(by_moments) < len(comparing)


def _without_values(spec: ReferenceSpec) -> tuple[ReferenceFile, dict[str, _Header]]:
    """Return a file with the shape of its images, which is checked, and what its arrays are."""
    file, held = ReferenceFile(spec.name, reference_path(spec), {}, None), {}
    with _reading(file), zipfile.ZipFile(file.path) as archive:
        for member in archive.infolist():
            name, _, suffix = member.filename.rpartition(".")
            if suffix != "npy":
                continue
            with archive.open(member) as opened:
                header = held[name] = _header(opened)
                size = math.prod(header.shape) * header.dtype.itemsize
                if not header.dtype.hasobject and opened.tell() + size != member.file_size:
                    raise ValueError(f"{member.filename} is cut short")
    return replace(file, shape=_image_shape(file, held.get(IMAGES))), held


def _header(opened: IO[bytes]) -> _Header:
    version = np.lib.format.read_magic(opened)
    read = {
        (1, 0): np.lib.format.read_array_header_1_0,
        (2, 0): np.lib.format.read_array_header_2_0,
    }
    if version not in read:
        raise ValueError(f"an array of .npy version {version[0]}.{version[1]}")
    return _Header(*read[version](opened))


def _image_shape(file: ReferenceFile, header: _Header | None) -> tuple[int, int, int, int] | None:
    if header is None:
        return None
    _check_plain(file, IMAGES, header)
    if header.dtype != np.uint8:
        raise _wrong(file, f"{IMAGES} is {header.dtype}, and images are uint8")
    if len(header.shape) != 4 or header.shape[3] not in (1, 3):
        raise _wrong(file, f"{IMAGES} is {list(header.shape)}, and images are [M, H, W, 3]")
    if header.shape[0] < FEWEST:
        raise _wrong(file, f"{IMAGES} has {header.shape[0]} images, fewer than {FEWEST}")
    M, H, W, C = header.shape
    return M, H, W, C


def _moments(file: ReferenceFile, held: Mapping[str, _Header], layer: str) -> tuple[Array, Array]:
    (mu, sigma), D = MOMENTS[layer], WIDTHS[layer]
    for key, shape in ((mu, (D,)), (sigma, (D, D))):
        if key not in held:
            raise _wrong(file, f"it lacks {key}")
        _check_plain(file, key, held[key])
        if held[key].shape != shape:
            found, wanted = list(held[key].shape), list(shape)
            raise _wrong(file, f"{key} is {found}, and Inception's is {wanted}")
        if held[key].dtype.kind != "f":
            raise _wrong(file, f"{key} is {held[key].dtype}, not of floating point")
    with _reading(file), np.load(file.path, allow_pickle=False) as arrays:
        mean, covariance = (arrays[key].astype(np.float64) for key in (mu, sigma))
    if not np.isfinite(mean).all() or not np.isfinite(covariance).all():
        raise _wrong(file, f"{mu} or {sigma} has values that are not finite")
    largest = np.abs(covariance).max()
    if np.abs(covariance - covariance.T).max() > 1e-4 * largest:
        raise _wrong(file, f"{sigma} is not symmetric, so no covariance")
    if np.diagonal(covariance).min() < -1e-6 * largest:
        raise _wrong(file, f"{sigma} has a negative variance, so it is no covariance")
    return mean, covariance


def _check_plain(file: ReferenceFile, key: str, header: _Header) -> None:
    if header.dtype.hasobject:
        raise _wrong(file, f"{key} holds pickled objects, which are never loaded")
    if header.fortran and len(header.shape) > 2:
        raise _wrong(file, f"{key} is stored in Fortran's order; ADM's files are in C's")


@contextlib.contextmanager
def _reading(file: ReferenceFile) -> Iterator[None]:
    """Turn what a damaged file raises into one line."""
    try:
        yield
    except (zipfile.BadZipFile, OSError, EOFError, ValueError) as error:
        raise _wrong(file, f"it is damaged, cut short or no .npz ({first_line(error)})") from None


def _wrong(file: ReferenceFile, reason: str) -> UserError:
    return UserError(f"reference {file.name}: {file.path}: {reason}")


def _size(shape: tuple[int, int, int]) -> str:
    C, H, W = shape
    return f"{H}x{W} with {C} {'channel' if C == 1 else 'channels'}"
