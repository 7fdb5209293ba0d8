"""Packs latents that a run can read into arrays, which are read ten times faster; resumable."""

# B batch, C channels, H height, W width

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tread_lab.config.data import DataSpec
from tread_lab.config.errors import UserError
from tread_lab.data.caption_files import captions_of
from tread_lab.data.content import content_digest
from tread_lab.data.packed import NUMBER, Steps, building, finish, is_whole
from tread_lab.data.scaled import Store
from tread_lab.data.source import open_store
from tread_lab.data.statistics import channel_statistics, statistics_beside

MARKS = {  # source -> what a folder holds of it
    "latents": ("latents.npy", "moments.npy"),
    "folder": ("dataset.json", "vae-sd/dataset.json"),
    "safetensors": ("*.safetensors",),
    "shards": ("*.tar",),
}


def source_of(path: Path) -> str:
    """Return the data source that a path is of, by what lies there.

    Raises:
        UserError: it is none, or could be several.
    """
    if not path.is_dir():
        return "latents" if path.suffix == ".npz" else "shards"
    held = [source for source, marks in MARKS.items() if any(any(path.glob(m)) for m in marks)]
    if len(held) == 1:
        return held[0]
    found = " and ".join(held) or "none of them"
    raise UserError(f"{path}: must hold latents of one source, got {found}. Try --source.")


def pack(source: str, path: Path, folder: Path, *, batch: int) -> Iterator[Steps]:
    """Pack all samples of tars, files or safetensors as they are stored, unscaled; yield how far
    it is.

    Images and captions beside the latents are packed with them, and so are the statistics of
    channels. A deviation becomes a log-variance.

    Raises:
        UserError: a sample cannot be read, samples are of several types, the latents are packed
            already, or the folder holds something else.
        DiskFull: there is no room; the same call goes on later.
    """
    if source == "latents":
        raise UserError(f"{path}: is packed already. Try `unzip` for an .npz.")
    store = open_store(source, path)
    statistics, data = None, DataSpec(source=source, path=str(path), normalise=False)
    if statistics_beside(str(path)) is not None:
        statistics = channel_statistics(str(path), store.shape[0])
        data = DataSpec(source=source, path=str(path), normalise=True)
    plan = {
        "packed": source,
        "scaled": data.holds.scaled,
        "digest": content_digest(data),
    }
    if is_whole(folder, plan):
        return
    with building(folder, plan, len(store.labels), batch) as parts:
        todo, done = parts.open_batches(), 0
        total = sum(map(len, todo))
        yield Steps(done, total)
        for rows in todo:
            parts.write(rows, _rows(store, np.arange(rows.start, rows.stop)))
            done += len(rows)
            yield Steps(done, total)
        finish(
            folder,
            parts,
            plan,
            labels=store.labels,
            captions=captions_of(store),
            statistics=statistics,
        )


def _rows(store: Store, ids: NDArray[np.int64]) -> dict[str, NDArray[Any]]:
    """Return what every array holds of samples `ids`."""
    name = "latents" if store.posterior == "none" else "moments"
    rows: dict[str, NDArray[Any]] = {NUMBER: ids, name: _stored(store, ids)}
    if store.flips:
        rows[f"{name}_flip"] = _stored(store, ids, np.ones(len(ids), bool))
    if (images := store.images(ids)) is not None:
        rows["images"] = images
    return rows


def _stored(
    store: Store, ids: NDArray[np.int64], mirrored: NDArray[np.bool_] | None = None
) -> NDArray[np.floating]:
    """Return stored values with a log-variance where there is a posterior."""
    stored = store.read(ids, mirrored)
    if store.posterior != "deviation":
        return stored
    C = store.shape[0]
    tiny = np.finfo(np.float32).tiny
    deviation = np.maximum(stored[:, C:].astype(np.float32), tiny)
    log_variance = (2 * np.log(deviation)).astype(stored.dtype)
    return np.concatenate([stored[:, :C], log_variance], axis=1)
