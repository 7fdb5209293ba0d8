"""Packed arrays from batches, and from latents of any other layout; both are resumable."""

# B batch, C channels, H height, W width

from __future__ import annotations

import json
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tread_lab.config.data import DataSpec
from tread_lab.config.errors import UserError, shown
from tread_lab.data.arrays import Parts
from tread_lab.data.latents import (
    CAPTIONS,
    packed_files,
    read_manifest,
    write_captions,
    write_manifest,
)
from tread_lab.data.source import content_digest, open_store
from tread_lab.data.statistics import OURS, channel_statistics, statistics_beside, write_statistics
from tread_lab.data.stored import Captions, Store
from tread_lab.records.durable import write_text, writing
from tread_lab.records.locks import exclusive

UNDER_WAY = ".building"  # folder of what is not whole yet
NUMBER = "number"  # of the samples of a batch, without damaged ones
DAMAGED, CLASSES = "damaged.txt", "classes.json"  # names of images left out, of classes
_LOCK = ".lock"
MARKS = {  # source -> what a folder holds of it
    "latents": ("latents.npy", "moments.npy"),
    "folder": ("dataset.json", "vae-sd/dataset.json"),
    "safetensors": ("*.safetensors",),
    "shards": ("*.tar",),
}


class Steps(NamedTuple):
    """Progress of a build: samples done, in total, and damaged."""

    done: int
    total: int
    damaged: int = 0


class Beside(NamedTuple):
    """Data beside the samples of a build.

    Attributes:
        names: names of images that may be damaged.
        statistics: folder of the normalization statistics.
    """

    labels: Sequence[int] | NDArray[np.int64]
    classes: Sequence[str] | None = None
    captions: Sequence[Captions] | None = None
    names: Sequence[str] = ()
    statistics: str | None = None


# Makes the batches that are still to come, and yields of each how many samples it is of, and how
# many of these are whole.
Write = Callable[[Parts, Sequence[range]], Generator[tuple[int, int], None, None]]


def build(
    folder: Path, plan: Mapping[str, object], batch: int, write: Write, beside: Beside
) -> Iterator[Steps]:
    """Build packed arrays in a folder, yielding the progress; existing batches are skipped. Does
    nothing if the data set of an equal plan is complete.

    Args:
        plan: everything that determines the content. Only an equal plan resumes a build.
        batch: samples per file.

    Raises:
        Busy: another process builds there.
        UserError: the folder cannot be written or has other content, or fewer than two samples are
            undamaged.
        DiskFull: no space; call again to continue.
    """
    if (manifest := read_manifest(folder)) is not None:
        _check_equal(folder, manifest.get("made_with", {}), plan)
        return
    parts = Parts(folder / UNDER_WAY, plan, len(beside.labels), batch)
    with writing(folder, ""), exclusive(folder / _LOCK, str(folder)):
        if (stored := parts.stored) is not None:
            _check_equal(folder, stored, parts.made_with)
        elif (held := next(packed_files(folder), None)) is not None:
            raise UserError(f"{folder}: must be empty, got {held.name}. Try another folder.")
        parts.begin()
        todo, done, damaged = parts.open_batches(), 0, 0
        total = sum(map(len, todo))
        yield Steps(done, total)
        with closing(write(parts, todo)) as batches:  # no thread writes after the lock is free
            for size, whole in batches:
                done, damaged = done + size, damaged + size - whole
                yield Steps(done, total, damaged)
        _finish(folder, parts, plan, beside)
    (folder / _LOCK).unlink(missing_ok=True)


def _check_equal(folder: Path, stored: Mapping[str, Any], asked: Mapping[str, object]) -> None:
    """Refuse a folder that was made with something else, by its first difference."""
    asked = json.loads(json.dumps(asked))
    for name in {**stored, **asked}:
        was, now = shown(stored.get(name)), shown(asked.get(name))
        if was != now:
            raise UserError(
                f"{folder}: must be a new folder or one with {name} {was}, got {now}. Try another"
                " folder, or remove this one."
            )


def _finish(folder: Path, parts: Parts, plan: Mapping[str, object], beside: Beside) -> None:
    """Join the batches of a build into arrays, with all that belongs to them.

    It may be repeated after it was stopped anywhere: the manifest, which says that all is whole,
    comes last. Until then the disk holds every array twice.
    """
    kept = np.concatenate([part[NUMBER] for part in parts.read()]).tolist()
    if len(kept) < 2:
        raise UserError(f"{folder}: requires at least 2 undamaged samples, got {len(kept)}")
    arrays = [name for name in next(parts.read()) if name != NUMBER]
    for name in arrays:
        parts.join(name, folder / f"{name}.npy")
    labels = np.asarray(beside.labels, np.int64)
    np.save(folder / "labels.npy", labels[kept])
    damaged = sorted({*range(len(labels))} - {*kept})
    if beside.classes is not None:
        text = json.dumps(list(beside.classes), ensure_ascii=False, indent=1)
        write_text(folder / CLASSES, f"{text}\n")
    if damaged:
        write_text(folder / DAMAGED, "".join(f"{beside.names[number]}\n" for number in damaged))
    if beside.captions is not None:
        write_captions(folder / CAPTIONS, (beside.captions[number] for number in kept))
    made = "moments" if "moments" in arrays else "latents"
    N, C, H, W = np.load(folder / f"{made}.npy", mmap_mode="r").shape
    C = C // 2 if made == "moments" else C
    if beside.statistics is not None:
        write_statistics(folder / OURS, channel_statistics(beside.statistics, C))
    facts = {
        "made_with": dict(plan),
        "samples": N,
        "labels": len(np.unique(labels[kept])),
        "latent": [C, H, W],
        "damaged": len(damaged),
    }
    names = [f"{name}.npy" for name in (*arrays, "labels")] + [CLASSES, DAMAGED, CAPTIONS, OURS]
    write_manifest(folder, facts, [name for name in names if (folder / name).exists()])
    parts.remove()


def source_of(path: Path) -> str:
    """Return the data source of a path, by its files.

    Raises:
        UserError: none or several fit.
    """
    if not path.is_dir():
        return "latents" if path.suffix == ".npz" else "shards"
    held = [source for source, marks in MARKS.items() if any(any(path.glob(m)) for m in marks)]
    if len(held) == 1:
        return held[0]
    found = " and ".join(held) or "none of them"
    raise UserError(f"{path}: must hold latents of one source, got {found}. Try --source.")


def pack(source: str, path: Path, folder: Path, *, batch: int) -> Iterator[Steps]:
    """Pack all samples of tars, files or safetensors, unscaled; yield the progress.

    Images, captions and channel statistics are packed as well. Deviations become log-variances.

    Raises:
        UserError: an unreadable sample, packed latents as input, or a folder with other content.
        DiskFull: no space; call again to continue.
    """
    if source == "latents":
        raise UserError(f"{path}: must not be packed latents. Try data.path={path}.")
    store, normalise = open_store(source, path), statistics_beside(str(path)) is not None
    data = DataSpec(source=source, path=str(path), normalise=normalise)
    plan = {"packed": source, "scaled": data.holds.scaled, "digest": content_digest(data)}

    def write(parts: Parts, todo: Sequence[range]) -> Generator[tuple[int, int], None, None]:
        for rows in todo:
            parts.write(rows, _rows(store, np.arange(rows.start, rows.stop)))
            yield len(rows), len(rows)

    statistics = str(path) if normalise else None
    beside = Beside(store.labels, captions=store.captions(), statistics=statistics)
    return build(folder, plan, batch, write, beside)


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
