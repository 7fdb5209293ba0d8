"""Verifies a data set: checksums, readable and finite values, labels and captions."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tread_lab.config.errors import UserError
from tread_lab.data.caption_files import captions_of
from tread_lab.data.latents import PackedArrays, file_facts, read_manifest
from tread_lab.data.measure import AT_ONCE
from tread_lab.data.scaled import Store, absent_labels
from tread_lab.data.source import open_store

_NAMED = 5  # numbers of samples that a line names


def faults(source: str, path: Path, *, classes: int | None = None) -> Iterator[str]:
    """Yield one line for each fault of a data set; nothing for one that is whole.

    What its values should be like is checked before training, which knows the process.

    Args:
        classes: labels are 0..classes-1; what the manifest says if it is `None`.
    """
    try:
        manifest: Any = (read_manifest(path) if path.is_dir() else None) or {}
        yield from _changed(path, manifest.get("files", {}))
        classes = classes or manifest.get("made_with", {}).get("classes")
        store = open_store(source, path)
        yield from _faults_of(store, classes)
        if absent := absent_labels(store.labels, classes or 0):
            yield f"classes without a sample: {absent}; their images are drawn and never trained"
        if isinstance(store, PackedArrays) and store.own_heldout:
            classes = classes or int(store.labels.max()) + 1
            for line in _faults_of(open_store(source, path, "heldout"), classes):
                yield f"held-out part: {line}"
    except UserError as error:
        yield str(error)


def _changed(folder: Path, files: Any) -> Iterator[str]:
    """Yield a line for each file that is not that of the manifest."""
    for name, stored in files.items():
        if not (folder / name).exists():
            yield f"{folder / name}: it is absent"
        elif file_facts(folder / name)["sha256"] != stored["sha256"]:
            yield f"{folder / name}: its checksum differs, its content has changed"


def _faults_of(store: Store, classes: int | None) -> Iterator[str]:
    """Yield one line for each fault of one part."""
    wrong = np.flatnonzero((store.labels < 0) | (store.labels >= (classes or np.inf)))
    if len(wrong):
        yield f"labels: must be in 0..{(classes or 0) - 1}, got others in {_samples(wrong)}"
    captions_of(store)
    for mirrored in (False, True)[: 1 + store.flips]:
        broken: list[int] = []
        for start in range(0, len(store.labels), AT_ONCE):
            ids = np.arange(start, min(start + AT_ONCE, len(store.labels)))
            try:
                stored = store.read(ids, np.full(len(ids), mirrored))
            except UserError as error:
                yield str(error)
                continue
            finite = np.isfinite(stored).all(axis=tuple(range(1, stored.ndim)))
            broken += ids[~finite].tolist()
        if broken:
            kind = "mirrored values" if mirrored else "values"
            yield f"{kind}: must be finite, got others in {_samples(np.array(broken))}"


def _samples(ids: NDArray[np.int64]) -> str:
    """Return `2 samples (3, 5)`, or `7 samples (3, 5, 8, 9, 12, ...)`."""
    named = ", ".join(map(str, ids[:_NAMED].tolist()))
    return f"{len(ids)} samples ({named}{', ...' if len(ids) > _NAMED else ''})"
