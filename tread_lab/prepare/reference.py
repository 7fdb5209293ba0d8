"""Makes reference statistics of real images, an .npz in the layout that ADM's evaluator reads."""

# N images, M of them stored, B batch, C channels, H height, W width

from __future__ import annotations

import functools
import shutil
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from tread_lab.data.npy import Member, write_npz
from tread_lab.engine.precision import matrix_products
from tread_lab.metrics import reference_file
from tread_lab.metrics.frechet import RunningMoments
from tread_lab.metrics.reference_file import FEWEST, IMAGES, MOMENTS
from tread_lab.prepare.images import Images, read_ahead
from tread_lab.prepare.packed import Steps, writable
from tread_lab.records.durable import DiskFull
from tread_lab.specs.errors import UserError
from tread_lab.specs.units import amount

if TYPE_CHECKING:
    from tread_lab.metrics.extraction import Extraction

LABELS = "arr_1"


def write_reference(
    images: Images,
    side: int,
    file: Path,
    extraction: Extraction,
    *,
    keep: int,
    batch: int = 100,
    workers: int = 1,
    skip_damaged: bool = False,
) -> Iterator[Steps]:
    """Write mean and covariance of the features of all images, and some images; yield how far.

    The file holds `mu`, `sigma` (pool_3), `mu_s`, `sigma_s` (spatial), float64, N - 1 in the
    denominator, the images `arr_0`, uint8 [M, H, W, 3], and their labels `arr_1`, int64 [M]. Sums
    are of a size that does not grow with N; stored images are read a second time. Whatever stops
    it leaves no file.

    Args:
        side: H and W, by ADM's centre crop.
        extraction: of Inception-2015.
        keep: how many images are stored, evenly spread; all if there are fewer.

    Raises:
        UserError: fewer images than a reference needs.
        DamagedImage: an image cannot be read, and `skip_damaged` does not leave it out.
        DiskFull: there is no room.
    """
    N = len(images.labels)
    _check_free(file, len(_kept(range(N), keep)), side)
    crops = functools.partial(_crops, images, side=side, batch=batch, workers=workers)
    sums, whole = {layer: RunningMoments() for layer in MOMENTS}, list[int]()
    yield Steps(0, N)
    with matrix_products("fp32"):
        for numbers, images_BCHW in crops(range(N), skip_damaged=skip_damaged):
            features = extraction(images_BCHW)
            for layer, moments in sums.items():
                moments.add(features[layer])
            whole += numbers
            yield Steps(numbers[-1] + 1, N, numbers[-1] + 1 - len(whole))
    yield Steps(N, N, N - len(whole))
    numbers = _kept(whole, keep)
    kept = crops(numbers, skip_damaged=False)
    labels_M = np.array([images.labels[number] for number in numbers], np.int64)
    members: dict[str, Member] = {
        key: (tuple(x.shape), np.float64, [x.cpu().numpy()])
        for layer, (mu, sigma) in MOMENTS.items()
        for key, x in ((mu, sums[layer].mean_D), (sigma, sums[layer].covariance_DD))
    }
    rows = (images_BCHW.permute(0, 2, 3, 1).numpy() for _, images_BCHW in kept)
    members[IMAGES] = (len(labels_M), side, side, 3), np.uint8, rows
    members[LABELS] = labels_M.shape, np.int64, [labels_M]
    write_npz(file, members)


def _kept(numbers: Sequence[int], keep: int) -> list[int]:
    """Return which of these images are stored."""
    count = len(numbers)
    if min(count, keep) < FEWEST:
        what = f"{count} images" if count < FEWEST else f"--keep {keep}"
        raise UserError(f"{what}: a reference needs at least {FEWEST} images")
    return [numbers[k * count // min(count, keep)] for k in range(min(count, keep))]


def _crops(
    images: Images,
    numbers: Sequence[int],
    side: int,
    *,
    batch: int,
    workers: int,
    skip_damaged: bool,
) -> Iterator[tuple[list[int], Tensor]]:
    """Yield numbers of images and their crops, uint8 [B, 3, side, side], read some batches ahead.
    Damaged images are not among them."""
    crop = functools.partial(images.crop, side=side, skip_damaged=skip_damaged)
    batches = (numbers[start : start + batch] for start in range(0, len(numbers), batch))
    pool = ThreadPoolExecutor(workers)
    try:
        for some, crops in read_ahead(pool, crop, batches):
            whole = {number: crop for number, crop in zip(some, crops) if crop is not None}
            if whole:
                yield [*whole], torch.from_numpy(np.stack([*whole.values()]))
    finally:
        pool.shutdown(wait=False, cancel_futures=True)


def _check_free(file: Path, kept: int, side: int) -> None:
    """Refuse a file that exists, that cannot be written, or that the disk has no room for."""
    if file.suffix != ".npz":
        raise UserError(f"{file}: statistics are an .npz; give a name such as {file.name}.npz")
    if file.exists():
        raise UserError(f"{file} exists already; choose another name, or remove it")
    writable(file.parent)
    need = kept * 3 * side * side + 8 * sum(D * D for D in reference_file.WIDTHS.values())
    free = shutil.disk_usage(file.parent).free
    if need > free:
        raise DiskFull(
            f"{file} needs {amount(need)}, and {amount(free)} are free; make room, or keep fewer"
            f" images than {kept:,} by --keep"
        )
