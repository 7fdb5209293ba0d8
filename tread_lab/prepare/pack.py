"""Packs latents that a run can read into arrays, which are read ten times faster; resumable."""

# B batch, C channels, H height, W width

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tread_lab.data.captions import captions_of
from tread_lab.data.content import content_digest
from tread_lab.data.exported import CLASSES
from tread_lab.data.latents import PackedArrays, read_manifest
from tread_lab.data.resumable import Array
from tread_lab.data.scaled import Store
from tread_lab.data.source import open_store
from tread_lab.data.statistics import channel_statistics, statistics_beside
from tread_lab.prepare.packed import Steps, build, check_whole, finish
from tread_lab.records.durable import read_json
from tread_lab.specs.data import DataSpec
from tread_lab.specs.errors import UserError

# Facts of the manifest of what is packed.
_CARRIED = ("packed", "scaled", "encoder", "scale", "shift", "decoder_range", "classes", "licence")
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
    if path.suffix == ".npz":
        return "latents"
    if not path.is_dir():
        if path.suffix == ".tar":
            return "shards"
        if path.is_file():
            raise UserError(f"{path} is no .tar and no .npz; unpack it and give the folder")
        raise UserError(f"there is no {path}; give a folder of latents, an .npz, or a glob of tars")
    held = [source for source, marks in MARKS.items() if any(any(path.glob(m)) for m in marks)]
    if len(held) == 1:
        return held[0]
    if held:
        raise UserError(f"{path} holds {' and '.join(held)}; say which by --source")
    marks = ", ".join(mark for marks in MARKS.values() for mark in marks)
    raise UserError(f"{path} holds no latents ({marks})")


def pack(source: str, path: Path, folder: Path, *, batch: int) -> Iterator[Steps]:
    """Pack all samples of a source as they are stored, unscaled; yield how far it is.

    Images and captions beside the latents are packed with them, and so are held-out arrays and the
    statistics of channels. A deviation becomes a log-variance.

    Raises:
        UserError: a sample cannot be read, or the folder holds something else.
        DiskFull: there is no room; the same call goes on later.
    """
    store = open_store(source, path)
    data = _data(source, path, store)
    statistics = channel_statistics(str(path), data.channels) if data.normalised else None
    plan = _plan(data, path, store)
    if check_whole(folder, plan):
        return
    count = len(store.labels)
    name = "latents" if store.posterior == "none" else "moments"
    arrays = {key: _array(rows) for key, rows in _rows(store, name, np.zeros(1, np.int64)).items()}
    with build(folder, plan, arrays, count) as made:
        chunks, done = made.open_parts(batch), 0
        total = sum(map(len, chunks))
        yield Steps(done, total)
        for chunk in chunks:
            ids = np.arange(chunk.start, chunk.stop)
            rows = _rows(store, name, ids)
            _check_types(rows, arrays, chunk)
            made.write(chunk.start, rows)
            done += len(chunk)
            yield Steps(done, total)
        finish(
            folder,
            made,
            plan,
            labels=store.labels,
            classes=read_json(path / CLASSES),
            captions=captions_of(store),
            statistics=statistics,
            heldout=path if "heldout" in plan else None,
        )


def _plan(data: DataSpec, path: Path, store: Store) -> dict[str, object]:
    """Return the facts that a build must share to be resumed, with those of its manifest."""
    plan: dict[str, object] = {
        "packed": data.source,
        "content": store.fingerprint,
        "scaled": data.holds.scaled,
        "digest": content_digest(data),
    }
    if isinstance(store, PackedArrays) and store.own_heldout:
        plan["heldout"] = open_store(data.source, path, "heldout").fingerprint
    manifest = (read_manifest(path) or {}) if path.is_dir() else {}
    origin = manifest.get("made_with")
    if isinstance(origin, dict):
        plan |= {key: origin[key] for key in _CARRIED if key in origin}
    return plan


def _data(source: str, path: Path, store: Store) -> DataSpec:
    """Return the data with the statistics that lie beside them, if any do."""
    channels, size, _ = store.shape
    normalise = None if statistics_beside(str(path)) is None else True
    return DataSpec(
        source=source, path=str(path), channels=channels, size=size, normalise=normalise
    )


def _rows(store: Store, name: str, ids: NDArray[np.int64]) -> dict[str, NDArray[Any]]:
    """Return what every array holds of samples `ids`."""
    rows: dict[str, NDArray[Any]] = {name: _stored(store, ids)}
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


def _check_types(
    rows: Mapping[str, NDArray[Any]], arrays: Mapping[str, Array], chunk: range
) -> None:
    """Refuse samples that an array, which has the type of the first one, would round."""
    for name, array in arrays.items():
        if not np.can_cast(rows[name].dtype, array.dtype):
            raise UserError(
                f"data pack: {name} of samples {chunk.start} to {chunk.stop - 1} hold"
                f" {rows[name].dtype}, and the first sample {array.dtype}; make all of one type"
            )


def _array(rows: Any) -> Array:
    return Array(rows.dtype.newbyteorder("=").name, rows.shape[1:])
