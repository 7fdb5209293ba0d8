"""The packed layout: what lies beside the arrays, and how a build becomes a whole data set."""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from tread_lab.data.captions import CAPTIONS, Captions, write_captions
from tread_lab.data.exported import CLASSES
from tread_lab.data.latents import HELDOUT, heldout_arrays
from tread_lab.data.manifest import read_manifest, write_manifest
from tread_lab.data.resumable import DAMAGED, TO_COME
from tread_lab.data.statistics import OURS, Statistics, write_statistics
from tread_lab.prepare.build import Build, clear, difference
from tread_lab.prepare.moments import ChannelMoments
from tread_lab.records.durable import writing
from tread_lab.specs.errors import UserError

DAMAGED_NAMES = "damaged.txt"
_MEASURED = 256  # samples that are measured at once


def check_whole(folder: Path, plan: Mapping[str, object]) -> bool:
    """Return whether the folder holds the whole data set of `plan` already.

    Raises:
        UserError: it holds another one.
    """
    manifest = read_manifest(folder)
    if manifest is None:
        return False
    stored, asked = manifest.get("made_with"), json.loads(json.dumps(dict(plan)))
    if not isinstance(stored, dict) or stored != asked:
        other = difference(stored if isinstance(stored, dict) else {}, asked)
        raise UserError(f"{folder} holds a data set with {other}")
    clear(folder)  # the process may have ended between the manifest and this
    return True


def finish(
    build: Build,
    plan: Mapping[str, object],
    *,
    channels_name: str,
    labels: NDArray[np.int64],
    classes: Sequence[str] | None = None,
    captions: Sequence[Captions] | None = None,
    statistics: Statistics | None = None,
    names: Sequence[str] = (),
    heldout: Path | None = None,
) -> None:
    """Put the arrays of a build in place, with labels and all that belongs to them.

    Nothing is done while another process has samples to make, or where all is in place.

    Args:
        channels_name: the array whose channels are measured, `latents` or `moments`.
        labels, captions, names: of all samples of the build, damaged ones included.
        statistics: mean and deviation by which the data are normalised.
        heldout: packed data whose held-out arrays come along.
    """
    folder = build.destination
    with build.alone():
        if read_manifest(folder) is not None or (build.marks() == TO_COME).any():
            return
        damaged = [names[place] for place in np.flatnonzero(build.marks() == DAMAGED).tolist()]
        kept = build.finish()
        with writing(folder, ""):
            beside = _write_beside(folder, labels[kept], classes, statistics, damaged)
            if captions is not None:
                write_captions(folder / CAPTIONS, (captions[place] for place in kept.tolist()))
                beside.append(CAPTIONS)
            beside += [] if heldout is None else _copy_heldout(heldout, folder)
        facts = {"made_with": dict(plan), **_facts(folder, channels_name, labels[kept])}
        files = [*(f"{name}.npy" for name in build.arrays), *beside]
        write_manifest(folder, {**facts, "damaged": len(damaged)}, files)
        clear(folder)


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


def class_names(folder: Path) -> list[str] | None:
    """Return the names of the classes in a packed folder, `None` where it has none."""
    try:
        names: list[str] = json.loads((folder / CLASSES).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return names


def _write_beside(
    folder: Path,
    labels: NDArray[np.int64],
    classes: Sequence[str] | None,
    statistics: Statistics | None,
    damaged: Sequence[str],
) -> list[str]:
    """Write the small files beside the arrays; return their names."""
    np.save(folder / "labels.npy", labels)
    names = ["labels.npy"]
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


def _facts(folder: Path, name: str, labels: NDArray[np.int64]) -> dict[str, object]:
    """Return counts, shape, and what the values are like."""
    array = np.load(folder / f"{name}.npy", mmap_mode="r")
    channels = array.shape[1] // (2 if name == "moments" else 1)
    moments = ChannelMoments(channels)
    for start in range(0, len(array), _MEASURED):
        moments.add(array[start : start + _MEASURED, :channels])
    return {
        "samples": len(array),
        "labels": len(np.unique(labels)),
        "latent": [channels, *array.shape[2:]],
        "mean": moments.mean_C.tolist(),
        "deviation": moments.deviation_C.tolist(),
    }
