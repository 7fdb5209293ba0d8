"""What an export keeps of its data: names of classes, statistics and captions, but no samples."""

# B batch, C channels, H height, W width

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from tread_lab.config.data import DataSpec
from tread_lab.config.errors import UserError
from tread_lab.data.caption_files import CAPTIONS, Captions, read_captions, write_captions
from tread_lab.data.folder import FolderImages
from tread_lab.data.latents import HELDOUT, MANIFEST
from tread_lab.data.scaled import Store
from tread_lab.data.statistics import OURS, channel_statistics, write_statistics
from tread_lab.records.durable import read_json
from tread_lab.records.run_folder import CONFIG, RunFolder

CLASSES = "classes.json"  # the names of classes, in packed data and in an export
# Beside the weights, where the data have them; the manifest, where the data are normalised.
KEPT = (CLASSES, MANIFEST, OURS, f"{HELDOUT}{CAPTIONS}")


def keep_beside_weights(out: Path, data: DataSpec, captions: Sequence[Captions] | None) -> None:
    """Write what sampling needs of the data, as far as they are here.

    Args:
        captions: of the held-out samples.

    Raises:
        UserError: the statistics that the samples are normalised by are damaged.
    """
    for name in KEPT:
        (out / name).unlink(missing_ok=True)
    path = Path(data.path or "").expanduser()
    if data.path is None or not path.exists():
        return
    for name in (CLASSES, *([MANIFEST] if data.normalised else [])):
        with contextlib.suppress(OSError):
            shutil.copyfile(path / name, out / name)
    if data.normalised:
        write_statistics(out / OURS, channel_statistics(data.path, data.channels))
    if captions is not None:
        write_captions(out / f"{HELDOUT}{CAPTIONS}", captions)


def is_export(data: DataSpec) -> bool:
    """Return whether the folder of the data is one of exported weights, which holds no sample."""
    return data.path is not None and RunFolder(Path(data.path).expanduser()).exported


def refuse_samples(data: DataSpec) -> NoReturn:
    """Refuse to read samples of an export, which has none."""
    raise UserError(
        f"data.path: {data.path} holds exported weights and no samples; write the folder of the"
        " data into its spec.yaml (data: {path: ...}); without them it can draw `samples`, and"
        " measure these by a file (--reference)"
    )


class ExportedStore(Store):
    """The store of an export: whatever shows a sample of the network's, and no samples."""

    labels: NDArray[np.int64] = np.zeros(0, np.int64)
    recorded = True

    def __init__(self, data: DataSpec) -> None:
        assert data.path is not None
        self._data, self._folder = data, Path(data.path).expanduser()
        self.shape = data.channels, data.size, data.size
        self.fingerprint = recorded_fingerprint(data)

    def read(
        self, ids: NDArray[np.int64], mirrored: NDArray[np.bool_] | None = None
    ) -> NDArray[np.floating]:
        refuse_samples(self._data)

    def captions(self) -> list[Captions] | None:
        """Return all captions of each held-out sample, `None` for a run that saw classes."""
        return read_captions(self._folder / f"{HELDOUT}{CAPTIONS}")


class ExportedImages(FolderImages):
    """The images of an export: levels for the network's values, and no image."""

    def __init__(self, data: DataSpec) -> None:
        self._data, (self._scale, _) = data, data.scales
        self.shape, self.classes = (data.channels, data.size, data.size), data.classes
        self.labels_N = torch.zeros(0, dtype=torch.int64)
        self.fingerprint = recorded_fingerprint(data)

    def images(self, ids: Tensor) -> Tensor:
        refuse_samples(self._data)


def recorded_fingerprint(data: DataSpec) -> str:
    """Return the fingerprint of the held-out samples by the record of an export."""
    config = read_json(Path(str(data.path)).expanduser() / CONFIG) or {}
    return str(config.get("heldout") or "not recorded")
