"""Makes reference statistics of real images, an .npz in the layout that ADM's evaluator reads."""

# N images, M of them stored, B batch, C channels, H height, W width

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import torch

from tread_lab.config.errors import UserError
from tread_lab.data.images import Images, crops
from tread_lab.data.npy import Member, write_npz
from tread_lab.data.packed import Steps
from tread_lab.evaluate.extraction import Extraction
from tread_lab.evaluate.frechet import RunningMoments
from tread_lab.evaluate.reference_file import FEWEST, IMAGES, MOMENTS

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
            features = extraction(torch.from_numpy(images_BCHW))
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
