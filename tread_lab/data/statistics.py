"""Statistics beside the data: mean and deviation of each channel, which normalise it."""

# C channels

from __future__ import annotations

import json
import pickle
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from tread_lab.config.errors import UserError, first_line
from tread_lab.records.durable import write_text

_JSON = (OSError, ValueError, LookupError, TypeError)
_TORCH = (AttributeError, RuntimeError, EOFError, pickle.UnpicklingError)
OURS, LIGHTNING = "statistics.json", "latents_stats.pt"


class Statistics(NamedTuple):
    """Mean and standard deviation of each channel, float64 [C]."""

    mean_C: NDArray[np.float64]
    deviation_C: NDArray[np.float64]

    @property
    def usable(self) -> bool:
        """Whether means are finite and deviations finite and positive."""
        finite = np.isfinite([*self.mean_C, *self.deviation_C]).all()
        return bool(finite and (self.deviation_C > 0).all())


def channel_statistics(path: str, channels: int) -> Statistics:
    """Return the statistics in the folder of the data, or beside them if they are a file.

    `statistics.json` holds lists `mean` and `deviation`; `latents_stats.pt` is LightningDiT's file,
    tensors `mean` and `std` of C values.

    Raises:
        UserError: there are none, or they are not one finite mean and one positive deviation for
            each of `channels`.
    """
    file = statistics_file(path)
    try:
        if file.name == OURS:
            tree = json.loads(file.read_text(encoding="utf-8"))
            found = tree["mean"], tree["deviation"]
        else:
            tree = torch.load(file, map_location="cpu", weights_only=True)
            found = tree["mean"].flatten(), tree["std"].flatten()
        statistics = Statistics(*(np.asarray(values, dtype=np.float64) for values in found))
    except (*_JSON, *_TORCH) as error:
        raise _wrong(file, first_line(error)) from None
    if not statistics.mean_C.shape == statistics.deviation_C.shape == (channels,):
        raise _wrong(file, f"{statistics.mean_C.size} and {statistics.deviation_C.size}")
    if not statistics.usable:
        raise _wrong(file, "a deviation of 0, or values that are not finite")
    return statistics


def statistics_file(path: str) -> Path:
    """Return the file of statistics in the folder of the data, or beside them.

    Raises:
        UserError: there is none.
    """
    if (file := statistics_beside(path)) is not None:
        return file
    folder = _folder(path)
    raise UserError(
        f"data.normalise: {folder} holds no {OURS} and no {LIGHTNING}; `tread-lab data stats"
        f" {folder} --write` measures them, data.normalise=false takes the values as they are"
    )


def statistics_beside(path: str) -> Path | None:
    """Return the file of statistics in the folder of the data, or beside them; `None` without."""
    files = (_folder(path) / name for name in (OURS, LIGHTNING))
    return next((file for file in files if file.exists()), None)


def write_statistics(path: Path, statistics: Statistics) -> None:
    """Write `statistics.json`; equal statistics are equal bytes.

    Raises:
        UserError: they would not be taken: a mean is not finite, or a deviation not positive. Or
            the folder cannot be written.
    """
    if not statistics.usable:
        raise UserError(f"{path}: must get finite channels that vary. Try `tread-lab data verify`.")
    tree = {
        "mean": statistics.mean_C.tolist(),
        "deviation": statistics.deviation_C.tolist(),
    }
    write_text(path, json.dumps(tree, indent=1) + "\n")


def _folder(path: str) -> Path:
    place = Path(path).expanduser()
    return place if place.is_dir() else place.parent


def _wrong(path: Path, found: str) -> UserError:
    return UserError(
        f"data.normalise: {path} must hold a mean and a deviation for each channel, got {found}."
        " Try `tread-lab data stats --write`."
    )
