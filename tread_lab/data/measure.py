"""Walks over what is stored: classes, channels and the scale it needs; every fault, in a line."""

# B batch, C channels, H height, W width, N values

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from tread_lab.config.errors import UserError
from tread_lab.data.content import sha256
from tread_lab.data.latents import read_manifest
from tread_lab.data.source import open_store
from tread_lab.data.stored import Store, absent_labels

AT_ONCE = 256  # samples
_NAMED = 5  # numbers of samples that a line names


@dataclass(frozen=True)
class Measured:
    """Statistics of stored values, unscaled.

    Attributes:
        counts: samples of each label 0..highest.
        mean_C, deviation_C: per channel, float64; for stored moments, of the posterior mean.
        spread: root mean variance of the posterior; 0 without moments.
        deviation: over all values of all channels, the posterior's variance included.
        lowest, highest: the extreme values.
    """

    shape: tuple[int, int, int]
    counts: tuple[int, ...]
    mean_C: NDArray[np.float64]
    deviation_C: NDArray[np.float64]
    spread: float
    deviation: float
    lowest: float
    highest: float

    def scale_for(self, deviation: float) -> float:
        """Return the `scale` for a target standard deviation of the network's values."""
        return deviation / self.deviation


def measure(store: Store) -> Measured:
    """Read every sample once and measure, in float64.

    Sums are shifted by the first sample's mean, to avoid cancellation.

    Raises:
        UserError: a sample cannot be read.
    """
    C, count = store.shape[0], len(store.labels) * math.prod(store.shape[1:])
    shift_C = store.read(np.arange(1))[0, :C].astype(np.float64).mean(axis=(1, 2))
    sum_C, squares_C, variance = np.zeros(C), np.zeros(C), 0.0
    lowest, highest = np.inf, -np.inf
    for ids in _batches(store):
        stored_BCHW = store.read(ids)
        values_BCN = stored_BCHW.reshape(*stored_BCHW.shape[:2], -1).astype(np.float64)
        x_BCN, behind_BCN = values_BCN[:, :C], values_BCN[:, C:]
        lowest, highest = min(lowest, x_BCN.min()), max(highest, x_BCN.max())
        of_deviation = store.posterior == "deviation"
        variance += (behind_BCN**2 if of_deviation else np.exp(behind_BCN)).sum()
        x_BCN -= shift_C[:, None]
        sum_C += x_BCN.sum(axis=(0, 2))
        squares_C += np.einsum("bcn,bcn->c", x_BCN, x_BCN)
    mean_C = shift_C + sum_C / count
    deviation_C = np.sqrt(np.maximum(squares_C / count - (sum_C / count) ** 2, 0))
    spread = variance / (count * C)
    within = float((deviation_C**2).mean() + ((mean_C - mean_C.mean()) ** 2).mean())
    return Measured(
        shape=store.shape,
        counts=tuple(np.bincount(np.maximum(store.labels, 0)).tolist()),
        mean_C=mean_C,
        deviation_C=deviation_C,
        spread=math.sqrt(spread),
        deviation=math.sqrt(within + spread),
        lowest=float(lowest),
        highest=float(highest),
    )


def faults(source: str, path: Path, *, classes: int | None = None) -> Iterator[str]:
    """Yield one line for each fault of a data set.

    Training checks the range of values, which depends on the process.

    Args:
        classes: labels are 0..classes-1; `None` uses the manifest's number.
    """
    try:
        manifest = (read_manifest(path) if path.is_dir() else None) or {}
        for name, facts in manifest.get("files", {}).items():
            if not (path / name).exists():
                yield f"{path / name}: it is absent"
            elif sha256(path / name) != facts["sha256"]:
                yield f"{path / name}: its checksum differs, its content has changed"
        classes = classes or manifest.get("made_with", {}).get("classes")
        store = open_store(source, path)
        yield from _faults_of(store, classes)
        if absent := absent_labels(store.labels, classes or 0):
            yield f"classes without a sample: {absent}; their images are drawn and never trained"
        if store.own_heldout:
            classes = classes or int(store.labels.max()) + 1
            for line in _faults_of(open_store(source, path, "heldout"), classes):
                yield f"held-out part: {line}"
    except UserError as error:
        yield str(error)


def _faults_of(store: Store, classes: int | None) -> Iterator[str]:
    """Yield one line for each fault of one part."""
    wrong = np.flatnonzero((store.labels < 0) | (store.labels >= (classes or np.inf)))
    if len(wrong):
        yield f"labels: must be in 0..{(classes or 0) - 1}, got others in {_samples(wrong)}"
    store.captions()
    for mirrored in (False, True)[: 1 + store.flips]:
        broken: list[int] = []
        for ids in _batches(store):
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


def _batches(store: Store) -> list[NDArray[np.int64]]:
    N = len(store.labels)
    return np.array_split(np.arange(N), -(-N // AT_ONCE))
