"""The .npz files of the ADM evaluator: samples to hand in, reference statistics to compare with."""

# N samples, H height, W width, C channels, D features

from __future__ import annotations

import zipfile
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from tread_lab.metrics.frechet import Moments
from tread_lab.records.durable import replacing
from tread_lab.specs.errors import UserError

# numpy's ways of not reading a file; TypeError: an .npy that calls itself .npz
UNREADABLE = (OSError, ValueError, EOFError, TypeError, zipfile.BadZipFile, zlib.error)


def write_samples(path: Path, images_NCHW: Tensor, labels_N: Tensor | None = None) -> None:
    """Write uint8 images as `arr_0` [N, H, W, C] and labels as `arr_1` int64 [N]."""
    assert images_NCHW.dtype == torch.uint8
    arrays: dict[str, Any] = {"arr_0": images_NCHW.cpu().permute(0, 2, 3, 1).contiguous().numpy()}
    if labels_N is not None:
        arrays["arr_1"] = labels_N.cpu().numpy().astype(np.int64)
    with replacing(path) as temporary, temporary.open("wb") as file:
        np.savez(file, **arrays)


def read_samples(path: Path) -> tuple[Tensor, Tensor | None]:
    """uint8 images [N, C, H, W] and labels [N] where the file has them.

    Raises:
        UserError: the file is absent, damaged or holds something else.
    """
    arrays = _read(path, "arr_0", "arr_1")
    images = arrays.get("arr_0")
    if images is None or images.dtype != np.uint8 or images.ndim != 4:
        raise UserError(f"{path} holds no images: `arr_0` must be uint8 [N, H, W, C]")
    labels = arrays.get("arr_1")
    images_NCHW = torch.from_numpy(images).permute(0, 3, 1, 2).contiguous()
    return images_NCHW, None if labels is None else torch.from_numpy(labels.astype(np.int64))


def read_moments(path: Path) -> Moments:
    """The `mu` [D] and `sigma` [D, D] of a reference file, in float64.

    Raises:
        UserError: the file is absent, damaged or has no such statistics.
    """
    arrays = _read(path, "mu", "sigma")
    mu, sigma = arrays.get("mu"), arrays.get("sigma")
    if mu is None or sigma is None or mu.ndim != 1 or sigma.shape != (len(mu), len(mu)):
        raise UserError(f"{path} holds no statistics: `mu` [D] and `sigma` [D, D] are needed")
    return Moments(mu.astype(np.float64), sigma.astype(np.float64))


def _read(path: Path, *names: str) -> dict[str, np.ndarray]:
    """Those arrays of `names` that the file has; never a pickle."""
    try:
        with path.open("rb") as file, np.load(file, allow_pickle=False) as arrays:
            return {name: arrays[name] for name in names if name in arrays.files}
    except FileNotFoundError:
        raise UserError(f"there is no {path}") from None
    except UNREADABLE as error:
        raise UserError(f"{path} is damaged or no .npz of plain arrays: {error}") from None
