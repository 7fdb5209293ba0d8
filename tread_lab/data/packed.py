"""The packed layout: what lies beside the arrays, and how a build becomes a whole data set."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tread_lab.config.errors import UserError, shown
from tread_lab.data.batch_files import Parts
from tread_lab.data.caption_files import CAPTIONS, Captions, write_captions
from tread_lab.data.latents import packed_files, read_manifest, write_manifest
from tread_lab.data.statistics import OURS, Statistics, write_statistics
from tread_lab.records.durable import write_text, writing
from tread_lab.records.locks import exclusive

UNDER_WAY = ".building"  # folder of what is not whole yet
NUMBER = "number"  # of the samples of a batch, without damaged ones
DAMAGED, CLASSES = "damaged.txt", "classes.json"  # names of images left out, of classes
_LOCK = ".lock"


class Steps(NamedTuple):
    """How many samples are done of all that were to come, and how many are damaged."""

    done: int
    total: int
    damaged: int = 0


def is_whole(folder: Path, plan: Mapping[str, object]) -> bool:
    """Return whether the folder holds the whole data set of `plan` already.

    Raises:
        UserError: it holds another one.
    """
    manifest: Any = read_manifest(folder)
    if manifest is None:
        return False
    _check_equal(folder, manifest.get("made_with", {}), plan)
    return True


@contextlib.contextmanager
def building(folder: Path, plan: Mapping[str, object], count: int, batch: int) -> Iterator[Parts]:
    """Begin batches of `count` samples in `.building` of a folder, or go on with them; no other
    process can until the block ends.

    Args:
        plan: everything that decides the content. A build goes on only under an equal plan.

    Raises:
        Busy: another process makes them.
        UserError: the folder cannot be written, or holds a data set or the beginning of another.
    """
    parts = Parts(folder / UNDER_WAY, plan, count, batch)
    with writing(folder, ""), exclusive(folder / _LOCK, str(folder)):
        if (stored := parts.stored) is not None:
            _check_equal(folder, stored, parts.made_with)
        for path in packed_files(folder) if stored is None else ():
            raise UserError(f"{folder}: must be empty, got {path.name}. Try another folder.")
        parts.begin()
        yield parts
    if not parts.folder.exists():
        (folder / _LOCK).unlink(missing_ok=True)


def _check_equal(folder: Path, stored: Mapping[str, Any], asked: Mapping[str, object]) -> None:
    """Refuse a folder that was made with something else, by its first difference."""
    asked = json.loads(json.dumps(asked))
    for name in {**stored, **asked}:
        was, now = shown(stored.get(name)), shown(asked.get(name))
        if was != now:
            raise UserError(
                f"{folder}: holds a data set, or the beginning of one, with {name} {was}, got"
                f" {now}. Try another folder, or remove this one."
            )


def finish(
    folder: Path,
    parts: Parts,
    plan: Mapping[str, object],
    *,
    labels: NDArray[np.int64],
    classes: Sequence[str] | None = None,
    captions: Sequence[Captions] | None = None,
    statistics: Statistics | None = None,
    names: Sequence[str] = (),
) -> None:
    """Join the batches of a build into arrays, with labels and all that belongs to them.

    It may be repeated after it was stopped anywhere: the manifest, which says that all is whole,
    comes last. Until then the disk holds every array twice.

    Args:
        labels, captions, names: of all samples of the build, damaged ones included.
        statistics: mean and deviation by which the data are normalised.

    Raises:
        UserError: fewer than two samples are whole.
    """
    kept = np.concatenate([part[NUMBER] for part in parts.read()]).tolist()
    if len(kept) < 2:
        raise UserError(f"{folder}: must get at least 2 whole samples, got {len(kept)}")
    arrays = [name for name in next(parts.read()) if name != NUMBER]
    for name in arrays:
        parts.join(name, folder / f"{name}.npy")
    np.save(folder / "labels.npy", labels[kept])
    texts = {}
    if classes is not None:
        texts[CLASSES] = json.dumps(list(classes), ensure_ascii=False, indent=1) + "\n"
    if damaged := sorted({*range(len(labels))} - {*kept}):
        texts[DAMAGED] = "".join(f"{names[number]}\n" for number in damaged)
    for name, text in texts.items():
        write_text(folder / name, text)
    if captions is not None:
        write_captions(folder / CAPTIONS, (captions[number] for number in kept))
    if statistics is not None:
        write_statistics(folder / OURS, statistics)
    made = "moments" if "moments" in arrays else "latents"
    N, C, H, W = np.load(folder / f"{made}.npy", mmap_mode="r").shape
    facts = {
        "made_with": dict(plan),
        "samples": N,
        "labels": len(np.unique(labels[kept])),
        "latent": [C // 2 if made == "moments" else C, H, W],
        "damaged": len(damaged),
    }
    beside = [name for name in (CAPTIONS, OURS) if (folder / name).exists()]
    write_manifest(folder, facts, [*(f"{a}.npy" for a in (*arrays, "labels")), *texts, *beside])
    parts.remove()
