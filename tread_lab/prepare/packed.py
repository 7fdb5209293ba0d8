"""The packed layout: what lies beside the arrays, and how a build becomes a whole data set."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from tread_lab.data.captions import CAPTIONS, Captions, write_captions
from tread_lab.data.exported import CLASSES
from tread_lab.data.latents import (
    HELDOUT,
    heldout_arrays,
    packed_files,
    read_manifest,
    write_manifest,
)
from tread_lab.data.npy import npy_header
from tread_lab.data.resumable import DAMAGED, STORED, Array, ResumableArrays
from tread_lab.data.statistics import OURS, Statistics, write_statistics
from tread_lab.prepare.measure import AT_ONCE, ChannelMoments
from tread_lab.records.durable import replacing, writing
from tread_lab.records.locks import exclusive
from tread_lab.specs.errors import UserError, shown

UNDER_WAY = ".building"  # folder of what is not whole yet
LOCK = ".lock"
LABELS = "labels.npy"
_DIGESTS = {  # entries of a plan whose values tell a reader nothing
    "names": "other images, labels or captions",
    "files": "images whose files may have changed",
    "encoder": "another autoencoder",
    "content": "other content",
    "heldout": "other held-out samples",
    "digest": "other content",
}
_COPIED = 4096  # samples that are moved at once where damaged ones are left out


class Steps(NamedTuple):
    """How many samples are done of all that were to come, and how many are damaged."""

    done: int
    total: int
    damaged: int = 0


@contextlib.contextmanager
def build(
    folder: Path, plan: Mapping[str, object], arrays: Mapping[str, Array], count: int
) -> Iterator[ResumableArrays]:
    """Begin arrays of `count` samples in `.building` of a folder, or go on with them; no other
    process can until the block ends.

    Args:
        plan: everything that decides the content. A build goes on only under an equal plan.

    Raises:
        Busy: another process makes them.
        UserError: the folder holds the beginning of something else.
        DiskFull: the arrays do not fit.
    """
    under_way = ResumableArrays(
        folder / UNDER_WAY, {**plan, "samples": count}, arrays, count, option=""
    )
    writable(folder)
    with exclusive(folder / LOCK, str(folder)):
        stored = under_way.stored_fingerprint
        if stored is None:
            for path in packed_files(folder):
                there = f"{folder} holds {path.name} already"
                raise UserError(f"{there}; choose another folder, or move that file away")
            under_way.begin("samples")
        elif other := difference(stored, under_way.fingerprint):
            raise UserError(f"{folder} holds the beginning of a data set with {other}")
        yield under_way


def clear(destination: Path) -> None:
    """Remove what only the making of a data set needed."""
    shutil.rmtree(destination / UNDER_WAY, ignore_errors=True)
    (destination / LOCK).unlink(missing_ok=True)


def writable(folder: Path) -> None:
    """Make a folder, or refuse it where nothing can be written."""
    with writing(folder, ""):
        folder.mkdir(parents=True, exist_ok=True)
    if not os.access(folder, os.W_OK | os.X_OK):
        raise UserError(f"cannot write {folder}; choose a folder you may write")


def difference(stored: Mapping[str, object], asked: Mapping[str, object]) -> str:
    """Return the first entry that differs: `size 256, and 512 is asked for; ...`; else nothing."""
    for name in (*_DIGESTS, *stored, *asked):
        was, now = stored.get(name), asked.get(name)
        if was != now:
            other = _DIGESTS.get(name, f"{name} {shown(was)}, and {shown(now)} is asked for")
            return f"{other}; choose another folder, or remove this one"
    return ""


DAMAGED_NAMES = "damaged.txt"


def check_whole(folder: Path, plan: Mapping[str, object]) -> bool:
    """Return whether the folder holds the whole data set of `plan` already.

    Raises:
        UserError: it holds another one.
    """
    manifest = read_manifest(folder)
    if manifest is None:
        return False
    made_with, asked = manifest.get("made_with"), json.loads(json.dumps(dict(plan)))
    stored = {**made_with} if isinstance(made_with, dict) else {}
    if other := difference(stored, asked):
        raise UserError(f"{folder} holds a data set with {other}")
    clear(folder)  # the process may have ended between the manifest and this
    return True


def finish(
    folder: Path,
    made: ResumableArrays,
    plan: Mapping[str, object],
    *,
    labels: NDArray[np.int64],
    classes: Sequence[str] | None = None,
    captions: Sequence[Captions] | None = None,
    statistics: Statistics | None = None,
    names: Sequence[str] = (),
    heldout: Path | None = None,
) -> None:
    """Put the arrays of a build in place, with labels and all that belongs to them.

    It may be repeated after it was stopped anywhere: the manifest, which tells that all is whole,
    comes last.

    Args:
        labels, captions, names: of all samples of the build, damaged ones included.
        statistics: mean and deviation by which the data are normalised.
        heldout: packed data whose held-out arrays come along.

    Raises:
        UserError: fewer than two samples are whole.
    """
    marks = made.marks()
    kept = np.flatnonzero(marks == STORED)
    if len(kept) < 2:
        raise UserError(f"{folder}: {len(kept)} of {len(marks)} samples are whole, too few")
    with writing(folder, ""):
        for path in filter(Path.exists, map(made.path, made.arrays)):
            _move(path, folder / path.name, kept)
        damaged = [names[place] for place in np.flatnonzero(marks == DAMAGED).tolist()]
        beside = _write_beside(folder, labels[kept], classes, statistics, damaged)
        if captions is not None:
            write_captions(folder / CAPTIONS, (captions[place] for place in kept.tolist()))
            beside.append(CAPTIONS)
        beside += [] if heldout is None else _copy_heldout(heldout, folder)
    facts = {"made_with": dict(plan), **_facts(folder, made.arrays, labels[kept])}
    files = [*(f"{name}.npy" for name in made.arrays), *beside]
    write_manifest(folder, {**facts, "damaged": len(damaged)}, files)
    clear(folder)


def _move(path: Path, place: Path, kept: NDArray[np.int64]) -> None:
    """Move the rows `kept` of an array, which stays as it is until they are all in place."""
    whole = np.load(path, mmap_mode="r")
    if len(whole) == len(kept):
        path.replace(place)
        return
    with replacing(place) as temporary, temporary.open("wb") as file:
        file.write(npy_header(whole.dtype, (len(kept), *whole.shape[1:])))
        for k in range(0, len(kept), _COPIED):
            file.write(whole[kept[k : k + _COPIED]].data)
    path.unlink()


def _copy_heldout(path: Path, folder: Path) -> list[str]:
    """Copy held-out arrays and captions as they are; return the names of their files."""
    names = []
    for name, array in heldout_arrays(path):
        np.save(folder / f"{name}.npy", array)
        names.append(f"{name}.npy")
    captions = f"{HELDOUT}{CAPTIONS}"
    if names and (path / captions).exists():
        shutil.copyfile(path / captions, folder / captions)
        names.append(captions)
    return names


def _write_beside(
    folder: Path,
    labels: NDArray[np.int64],
    classes: Sequence[str] | None,
    statistics: Statistics | None,
    damaged: Sequence[str],
) -> list[str]:
    """Write the small files beside the arrays; return their names."""
    np.save(folder / LABELS, labels)
    names = [LABELS]
    if classes is not None:
        text = json.dumps(list(classes), ensure_ascii=False, indent=1)
        (folder / CLASSES).write_text(text + "\n", encoding="utf-8")
        names.append(CLASSES)
    if statistics is not None:
        write_statistics(folder / OURS, statistics)
        names.append(OURS)
    if damaged:
        text = "".join(f"{name}\n" for name in damaged)
        (folder / DAMAGED_NAMES).write_text(text, encoding="utf-8", errors="surrogateescape")
        names.append(DAMAGED_NAMES)
    return names


def _facts(folder: Path, arrays: Collection[str], labels: NDArray[np.int64]) -> dict[str, object]:
    """Return counts, shape, and what the values are like."""
    name = "moments" if "moments" in arrays else "latents"
    array = np.load(folder / f"{name}.npy", mmap_mode="r")
    channels = array.shape[1] // (2 if name == "moments" else 1)
    moments = ChannelMoments(channels)
    for start in range(0, len(array), AT_ONCE):
        moments.add(array[start : start + AT_ONCE, :channels])
    return {
        "samples": len(array),
        "labels": len(np.unique(labels)),
        "latent": [channels, *array.shape[2:]],
        "mean": moments.mean_C.tolist(),
        "deviation": moments.deviation_C.tolist(),
    }
