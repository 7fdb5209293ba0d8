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

from tread_lab.records.durable import write_text
from tread_lab.specs.errors import UserError, first_line

OURS, LIGHTNING = "statistics.json", "latents_stats.pt"


class Statistics(NamedTuple):
    """Mean and standard deviation of each channel, float64 [C]."""

    mean_C: NDArray[np.float64]
    deviation_C: NDArray[np.float64]


def channel_statistics(path: str, channels: int) -> Statistics:
    """Return the statistics in the folder of the data, or beside them if they are a file.

    `statistics.json` holds lists `mean` and `deviation`; `latents_stats.pt` is LightningDiT's file,
    tensors `mean` and `std` of C values.

    Raises:
        UserError: there are none, or they are not one finite mean and one positive deviation for
            each of `channels`.
    """
    file = statistics_file(path)
    return _checked(file, (_ours if file.name == OURS else _lightning)(file), channels)


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
    if not (np.isfinite(statistics.mean_C).all() and (statistics.deviation_C > 0).all()):
        raise UserError(
            f"{path} is not written: a channel is constant or not finite; `tread-lab data verify`"
            " names the samples"
        )
    tree = {
        "mean": statistics.mean_C.tolist(),
        "deviation": statistics.deviation_C.tolist(),
    }
    write_text(path, json.dumps(tree, indent=1) + "\n")


def _folder(path: str) -> Path:
    place = Path(path).expanduser()
    return place if place.is_dir() else place.parent


def _ours(path: Path) -> tuple[object, object]:
    try:
        tree = json.loads(path.read_text(encoding="utf-8"))
        return tree["mean"], tree["deviation"]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise _wrong(path, f"holds no lists `mean` and `deviation` ({error!r})") from None


def _lightning(path: Path) -> tuple[object, object]:
    try:
        tree = torch.load(path, map_location="cpu", weights_only=True)
        return tree["mean"].double().flatten().tolist(), tree["std"].double().flatten().tolist()
    except (OSError, RuntimeError, pickle.UnpicklingError, EOFError, LookupError) as error:
        raise _wrong(path, f"holds no tensors `mean` and `std` ({first_line(error)})") from None
    except (AttributeError, TypeError):
        raise _wrong(path, "holds no tensors `mean` and `std`") from None


def _checked(path: Path, found: tuple[object, object], channels: int) -> Statistics:
    try:
        mean_C, deviation_C = (np.asarray(values, dtype=np.float64) for values in found)
    except (TypeError, ValueError):
        raise _wrong(path, "holds something other than numbers") from None
    if mean_C.shape != (channels,) or deviation_C.shape != (channels,):
        sizes = f"{mean_C.size} means and {deviation_C.size} deviations"
        raise _wrong(path, f"holds {sizes}, and the data have {channels} channels")
    if not (np.isfinite(mean_C).all() and np.isfinite(deviation_C).all()):
        raise _wrong(path, "holds values that are not finite")
    if not (deviation_C > 0).all():
        channel = int(np.argmin(deviation_C))
        raise _wrong(path, f"says that channel {channel} deviates by {deviation_C[channel]:g}")
    return Statistics(mean_C, deviation_C)


def _wrong(path: Path, what: str) -> UserError:
    return UserError(f"data.normalise: {path} {what}; `tread-lab data stats --write` makes it anew")
