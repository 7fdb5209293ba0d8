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
from tread_lab.records.durable import write_json

_TORCH = (AttributeError, RuntimeError, EOFError, pickle.UnpicklingError)
UNREADABLE = (OSError, ValueError, LookupError, TypeError, *_TORCH)
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

    `statistics.json` has lists `mean` and `deviation`; LightningDiT's `latents_stats.pt` has
    tensors `mean` and `std` of C values.

    Raises:
        UserError: missing, or not one finite mean and one positive deviation per channel.
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
        if not statistics.mean_C.shape == statistics.deviation_C.shape == (channels,):
            raise ValueError(f"{statistics.mean_C.size} and {statistics.deviation_C.size} values")
        if not statistics.usable:
            raise ValueError("a deviation of 0, or values that are not finite")
    except UNREADABLE as error:
        raise UserError(
            f"data.normalise: {file} must hold a mean and a deviation for each channel, got"
            f" {first_line(error)}. Try `tread-lab data stats --write`."
        ) from None
    return statistics


def statistics_file(path: str) -> Path:
    """Return the file of statistics in the folder of the data, or beside them.

    Raises:
        UserError: there is none.
    """
    if (file := statistics_beside(path)) is None:
        raise UserError(
            f"data.normalise: {path} must have {OURS} or {LIGHTNING} beside it, got none. Try"
            " `tread-lab data stats --write`, or data.normalise=false."
        )
    return file


def statistics_beside(path: str) -> Path | None:
    """Return the file of statistics in the folder of the data, or beside them; `None` without."""
    place = Path(path).expanduser()
    folder = place if place.is_dir() else place.parent
    return next((folder / name for name in (OURS, LIGHTNING) if (folder / name).exists()), None)


def write_statistics(path: Path, statistics: Statistics) -> None:
    """Write `statistics.json`; equal statistics are equal bytes.

    Raises:
        UserError: a mean is not finite, a deviation not positive, or the folder is not writable.
    """
    if not statistics.usable:
        raise UserError(f"{path}: must get finite channels that vary. Try `tread-lab data verify`.")
    tree = {"mean": statistics.mean_C.tolist(), "deviation": statistics.deviation_C.tolist()}
    write_json(path, tree)
