"""What samples are compared with: held-out images, or a file as ADM's evaluator reads it."""

# N images, M of them stored, B batch, C channels, H height, W width, D features

from __future__ import annotations

import functools
import math
import os
import zipfile
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from tread_lab.config.errors import UserError, first_line
from tread_lab.config.metrics import METRICS, ReferenceSpec
from tread_lab.data.arrays import Member, write_npz
from tread_lab.data.content import sha256
from tread_lab.data.images import Images, crops
from tread_lab.data.pack import Steps
from tread_lab.data.source import Samples
from tread_lab.evaluate.formulas import Moments, RunningMoments
from tread_lab.train.precision import matrix_products

VARIABLE = "TREAD_LAB_REFERENCES"
IMAGES, LABELS = "arr_0", "arr_1"
MOMENTS = {"pool": ("mu", "sigma"), "spatial": ("mu_s", "sigma_s")}
WIDTHS = {"pool": 2048, "spatial": 2023}  # D of Inception's layers
FEWEST = 100  # images that moments or neighbours are computed from
AT_ONCE = 200  # real images that are decoded and described together


@dataclass(frozen=True)
class Reference:
    """Real images to compare with, loaded on demand.

    Attributes:
        name: identity: data, decoder and number of images, or name and digest of a file.
        batches: returns a new iterator over them, uint8 [B, C, H, W], on any device.
        moments: Inception layer -> mean and covariance from a file, if any.
        file: their file; `None` for held-out images.
        shape: (C, H, W) of the file's images, or `None`.
    """

    name: str
    batches: Callable[[], Iterable[Tensor]]
    moments: Mapping[str, Moments] = field(default_factory=dict)
    file: Path | None = None
    shape: tuple[int, int, int] | None = None

    def check_size(self, shape: tuple[int, int, int]) -> None:
        """Refuse images of another shape than (C, H, W)."""
        if self.shape is not None and self.shape != shape:
            raise UserError(
                f"reference {self.name}: images must be {list(shape)} like the samples, got "
                f"{list(self.shape)}"
            )


def heldout_reference(samples: Samples, device: torch.device) -> Reference:
    """Return the held-out images of a run's data, decoded on demand."""

    def images() -> Iterator[Tensor]:
        for ids in torch.split(torch.arange(len(samples)), AT_ONCE):
            yield pixels(samples, samples.take(ids)[0].to(device))

    return Reference(f"heldout-{samples.fingerprint}-{samples.decoder}-{len(samples)}", images)


def pixels(samples: Samples, x_BCHW: Tensor) -> Tensor:
    """Return uint8 images of samples, on their device; tf32 products hardly change 256 levels."""
    with matrix_products("tf32"):
        return samples.pixels(x_BCHW)


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
        f"reference {spec.name}: {looked}. Set reference.path to the .npz file, or {VARIABLE} to a"
        f" folder with {' or '.join(spec.files)}."
    )


def open_reference(spec: ReferenceSpec, metrics: Collection[str]) -> Reference:
    """Return the file of a reference after checking everything that metrics require, except image
    values.

    Without `mu` in the file, moments are computed from the images, as in ADM's evaluator.

    Raises:
        UserError: a missing file, or unsuitable content.
    """
    path = reference_path(spec)
    comparing = [METRICS[metric] for metric in metrics if METRICS[metric].compares]
    layers: set[str] = {metric.layer for metric in comparing if metric.moments_given}
    try:
        with np.load(path, allow_pickle=False) as arrays:
            given: set[str] = layers if "mu" in arrays else set()
            moments = {layer: _moments(arrays, layer) for layer in given}
            shape = _image_shape(path) if IMAGES in arrays else None
        if shape is None and (layers - given or not all(m.moments_given for m in comparing)):
            raise ValueError(f"must hold the images {IMAGES}, got none")
    except (zipfile.BadZipFile, OSError, EOFError, ValueError, LookupError) as error:
        raise UserError(f"reference {spec.name}: {path}: {first_line(error)}") from None
    batches = functools.partial(_images, path)
    return Reference(f"{spec.name}-{sha256(path)[:16]}", batches, moments, path, shape)


def _images(path: Path) -> Iterator[Tensor]:
    """Yield the images of a file in order, uint8 [B, C, H, W]; few at a time are in memory."""
    with zipfile.ZipFile(path) as archive, archive.open(f"{IMAGES}.npy") as member:
        (count, *sides), *_ = _header(member)
        for start in range(0, count, AT_ONCE):
            rows = min(AT_ONCE, count - start)
            values = np.frombuffer(member.read(rows * math.prod(sides)), np.uint8)
            yield torch.from_numpy(values.reshape(rows, *sides).transpose(0, 3, 1, 2).copy())


def _header(opened: IO[bytes]) -> tuple[tuple[int, ...], bool, np.dtype[Any]]:
    """Return shape, order and type of an array, whose values follow."""
    np.lib.format.read_magic(opened)
    return np.lib.format.read_array_header_1_0(opened)


def _image_shape(path: Path) -> tuple[int, int, int]:
    with zipfile.ZipFile(path) as archive, archive.open(f"{IMAGES}.npy") as member:
        shape, fortran, dtype = _header(member)
    fits = len(shape) == 4 and shape[3] in (1, 3) and shape[0] >= FEWEST
    if dtype != np.uint8 or fortran or not fits:
        wanted = f"uint8 [M, H, W, 3] with M of at least {FEWEST}"
        raise ValueError(f"{IMAGES} must be {wanted}, got {dtype} {list(shape)}")
    _, H, W, C = shape
    return C, H, W


def _moments(arrays: Mapping[str, NDArray[Any]], layer: str) -> Moments:
    (mu, sigma), D = MOMENTS[layer], WIDTHS[layer]
    if {mu, sigma} - {*arrays}:
        raise ValueError(f"{mu} or {sigma} is missing")
    mean, covariance = arrays[mu].astype(np.float64), arrays[sigma].astype(np.float64)
    if mean.shape != (D,) or covariance.shape != (D, D):
        found = f"{list(mean.shape)} and {list(covariance.shape)}"
        raise ValueError(f"{mu} and {sigma} must be [{D}] and [{D}, {D}], got {found}")
    if not np.isfinite(mean).all() or not np.isfinite(covariance).all():
        raise ValueError(f"{mu} and {sigma} must be finite")
    return torch.from_numpy(mean), torch.from_numpy(covariance)


def write_reference(
    images: Images,
    side: int,
    file: Path,
    describe: Callable[[Tensor], dict[str, Tensor]],
    *,
    keep: int,
    batch: int = 100,
    workers: int = 1,
    skip_damaged: bool = False,
) -> Iterator[Steps]:
    """Write mean and covariance of the features of all images, and some images; yield the progress.

    The file holds `mu`, `sigma` (pool_3), `mu_s`, `sigma_s` (spatial), float64, N - 1 in the
    denominator, the images `arr_0`, uint8 [M, H, W, 3], and their labels `arr_1`, int64 [M]. Memory
    does not grow with N; stored images are read a second time. No file remains after an
    interruption.

    Args:
        side: H and W, by ADM's centre crop.
        describe: uint8 images [B, 3, H, W] -> features of Inception-2015 by layer.
        keep: number of stored images, evenly spaced; all if there are fewer.

    Raises:
        UserError: fewer images than a reference needs.
        DamagedImage: an unreadable image without `skip_damaged`.
        DiskFull: no space.
    """
    N = len(images.labels)
    if file.suffix != ".npz" or file.exists():
        raise UserError(f"{file}: must be a new .npz. Try another name.")
    _kept(range(N), keep)
    file.parent.mkdir(parents=True, exist_ok=True)
    sums, whole = {layer: RunningMoments() for layer in MOMENTS}, list[int]()
    read = functools.partial(crops, images, side=side, workers=workers, skip_damaged=skip_damaged)
    done = 0
    yield Steps(done, N)
    for numbers, images_BCHW in read(_batches(range(N), batch)):
        if numbers:
            features = describe(torch.from_numpy(images_BCHW))
            for layer, moments in sums.items():
                moments.add(features[layer])
        done, whole = min(done + batch, N), whole + numbers
        yield Steps(done, N, done - len(whole))
    numbers = _kept(whole, keep)
    labels_M = np.array([images.labels[number] for number in numbers], np.int64)
    members: dict[str, Member] = {
        key: (tuple(x.shape), np.float64, [x.cpu().numpy()])
        for layer, (mu, sigma) in MOMENTS.items()
        for key, x in ((mu, sums[layer].mean_D), (sigma, sums[layer].covariance_DD))
    }
    rows = (images_BCHW.transpose(0, 2, 3, 1) for _, images_BCHW in read(_batches(numbers, batch)))
    members[IMAGES] = (len(labels_M), side, side, 3), np.uint8, rows
    members[LABELS] = labels_M.shape, np.int64, [labels_M]
    write_npz(file, members)


def _batches(numbers: Sequence[int], size: int) -> list[Sequence[int]]:
    return [numbers[start : start + size] for start in range(0, len(numbers), size)]


def _kept(numbers: Sequence[int], keep: int) -> list[int]:
    """Return which of these images are stored."""
    count = len(numbers)
    if (most := min(count, keep)) < FEWEST:
        raise UserError(f"reference: must keep at least {FEWEST} images, got {most}")
    return [numbers[k * count // most] for k in range(most)]
