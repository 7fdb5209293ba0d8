"""Verifies a data set: checksums, shapes, finite values, labels, captions and deviation."""

# B batch, C channels, H height, W width

from __future__ import annotations

import re
from collections.abc import Generator, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tread_lab.data.captions import captions_of
from tread_lab.data.deviation import FAR, NEAR
from tread_lab.data.latents import PackedArrays, file_facts, read_manifest
from tread_lab.data.scaled import Split, Store, absent_labels
from tread_lab.data.shards import tars_of
from tread_lab.data.source import open_store
from tread_lab.data.statistics import Statistics, channel_statistics, statistics_beside
from tread_lab.prepare.measure import AT_ONCE, ChannelMoments, posterior_variance
from tread_lab.specs.data import SD_DEVIATION, SD_SCALE, SOURCES
from tread_lab.specs.errors import UserError

_SHIFTED = 0.5  # deviations by which the mean of a channel may differ from its statistics
ENCODED = SD_DEVIATION / SD_SCALE
FILES = {"shards": ".tar", "safetensors": ".safetensors"}  # of sources in numbered files
_NAMED = 5  # numbers of samples that a line names


def faults(source: str, path: Path, *, classes: int | None = None) -> Iterator[str]:
    """Yield one line for each fault of a data set; nothing for one that is whole.

    Args:
        classes: labels are 0..classes-1; what the manifest says if it is `None`.
    """
    manifest: Mapping[str, Any] = {}
    try:
        manifest = read_manifest(path) or {} if path.is_dir() else {}
    except UserError as error:
        yield str(error)
    yield from _changed(path, manifest)
    yield from _gaps(path if path.is_dir() else path.parent, FILES.get(source, ""))
    if source == "shards":
        broken = [line for tar in tars_of(path) for line in _unreadable(tar)]
        yield from broken
        if broken:
            return
    made_with = manifest.get("made_with", {})
    classes, scale = classes or made_with.get("classes"), made_with.get("scale")
    scale = SD_SCALE if scale is None and source == "shards" else scale
    store = yield from _faults_of(source, path, "all", classes, scale)
    if isinstance(store, PackedArrays) and store.own_heldout:
        classes = classes or int(store.labels.max()) + 1
        for line in _faults_of(source, path, "heldout", classes, scale):
            yield f"held-out part: {line}"


def _faults_of(
    source: str, path: Path, split: Split, classes: int | None, scale: float | None
) -> Generator[str, None, Store | None]:
    """Yield one line for each fault of one part; return its store, `None` if there is none."""
    try:
        store = open_store(source, path, split)
    except UserError as error:
        yield str(error)
        return None
    yield from _labels(store, classes)
    if split == "all" and (absent := absent_labels(store.labels, classes or 0)):
        yield f"classes without a sample: {absent}; their images are drawn and never trained"
    C, H, W = store.shape
    if C == H != W:
        yield f"samples are [{C}, {H}, {W}]: channels stand first, [C, H, W]"
    statistics = None
    try:
        captions_of(store)
        normalised = SOURCES[source].normalised or statistics_beside(str(path)) is not None
        if normalised and split == "all":
            statistics = channel_statistics(str(path), C)
    except UserError as error:
        yield str(error)
    yield from _values(store, scale, source, statistics)
    return store


def _gaps(folder: Path, suffix: str) -> Iterator[str]:
    """Yield a line for each number that is missing between the first and the last of files."""
    numbers: dict[tuple[str, int], set[int]] = {}
    for file in folder.glob(f"*{suffix}") if suffix else ():
        if (parts := re.fullmatch(r"(.*?)(\d+)", file.name.removesuffix(suffix))) is not None:
            numbers.setdefault((parts[1], len(parts[2])), set()).add(int(parts[2]))
    for (prefix, width), found in sorted(numbers.items()):
        for missing in sorted({*range(min(found), max(found))} - found)[:_NAMED]:
            yield f"{folder / f'{prefix}{missing:0{width}d}{suffix}'}: it is absent between others"


def _changed(folder: Path, manifest: Mapping[str, Any]) -> Iterator[str]:
    """Files that are not those of the manifest."""
    for name, stored in manifest.get("files", {}).items():
        file = folder / name
        if not file.exists():
            yield f"{file}: it is absent"
        elif file.stat().st_size != stored["bytes"]:
            yield f"{file}: it has {file.stat().st_size:,} bytes, and had {stored['bytes']:,}"
        elif file_facts(file)["sha256"] != stored["sha256"]:
            yield f"{file}: its checksum differs, its content has changed since it was made"


def _unreadable(tar: Path) -> Iterator[str]:
    try:
        open_store("shards", tar)
    except UserError as error:
        if "too few to split" not in str(error):
            yield str(error)


def _labels(store: Store, classes: int | None) -> Iterator[str]:
    wrong = np.flatnonzero((store.labels < 0) | (store.labels >= (classes or np.inf)))
    if len(wrong):
        values = sorted(set(store.labels[wrong].tolist()))[:_NAMED]
        allowed = f"0..{classes - 1}" if classes else "0 or more"
        labels = ", ".join(map(str, values))
        yield f"{_samples(wrong)}: the label is {labels}, and must be {allowed}"


def _values(
    store: Store, scale: float | None, source: str, statistics: Statistics | None
) -> Iterator[str]:
    """Samples that cannot be read or are not finite; a deviation, or statistics beside the data,
    that cannot be right."""
    C, moments, spread, count = store.shape[0], ChannelMoments(store.shape[0]), 0.0, 0
    views: tuple[tuple[str, bool], ...] = (("", False), (" (mirrored)", True))
    for kind, flip in views[: 1 + store.flips]:
        broken: list[int] = []
        for start in range(0, len(store.labels), AT_ONCE):
            ids = np.arange(start, min(start + AT_ONCE, len(store.labels)))
            good = []
            for part in _readable(store, ids, flip):
                if isinstance(part, str):
                    yield part
                    continue
                places, stored = part
                with np.errstate(over="ignore"):
                    finite = np.isfinite(stored.reshape(len(stored), -1)).all(axis=1)
                broken += places[~finite].tolist()
                good.append(stored[finite])
            for stored in good:
                if len(stored) and not flip:
                    moments.add(stored[:, :C])
                    spread += float(posterior_variance(store, stored).sum())
                    count += stored[:, :C].size
        if broken:
            yield f"{_samples(np.array(broken))}{kind}: values are not finite (NaN or infinite)"
    if count:
        yield from _deviation(float(np.sqrt(moments.deviation**2 + spread / count)), scale, source)
        yield from _unlike(statistics, moments)


Part = tuple[NDArray[np.int64], NDArray[np.floating]]


def _readable(store: Store, ids: NDArray[np.int64], flip: bool) -> Iterator[Part | str]:
    """Yield what can be read, at once if all can; a line for each sample that cannot."""
    try:
        yield ids, store.read(ids, np.full(len(ids), flip))
        return
    except UserError:
        pass
    for place in ids.tolist():
        one = np.array([place])
        try:
            yield one, store.read(one, np.array([flip]))
        except UserError as error:
            yield str(error)


def _deviation(deviation: float, scale: float | None, source: str) -> Iterator[str]:
    if deviation == 0:
        yield "all values are the same"
    elif scale is None and not SD_DEVIATION / FAR <= deviation <= ENCODED * FAR:
        yield (
            f"the deviation is {deviation:.3g}; latents that are scaled have about 1, those of the"
            f" SD autoencoder {ENCODED:.3g} as it gives them"
        )
    elif scale:
        seen = deviation if SOURCES[source].scaled else deviation * scale
        expected, near = (SD_DEVIATION, NEAR) if scale == SD_SCALE else (1.0, FAR)
        if not expected / near <= seen <= expected * near:
            yield (
                f"the deviation is {deviation:.3g}, so the network would see {seen:.3g}; latents of"
                f" an autoencoder with the factor {scale:g} should have {expected:g} then"
            )


def _unlike(statistics: Statistics | None, moments: ChannelMoments) -> Iterator[str]:
    """Statistics of other data: a mean half a deviation away, a deviation 1.5 times off."""
    if statistics is None:
        return
    ratio_C = np.maximum(moments.deviation_C, 1e-12) / statistics.deviation_C
    far_C = np.abs(moments.mean_C - statistics.mean_C) > _SHIFTED * statistics.deviation_C
    for c in np.flatnonzero(far_C | (ratio_C > NEAR) | (ratio_C < 1 / NEAR))[:1].tolist():
        yield (
            f"statistics: channel {c} has mean {moments.mean_C[c]:.3g} and deviation"
            f" {moments.deviation_C[c]:.3g}, and they say {statistics.mean_C[c]:.3g} and"
            f" {statistics.deviation_C[c]:.3g}; `tread-lab data stats --write` makes them anew"
        )


def _samples(places: NDArray[np.int64]) -> str:
    """Return `sample 3`, or `7 samples (3, 5, 8, 9, 12, ...)`."""
    if len(places) == 1:
        return f"sample {places[0]}"
    return f"{len(places)} samples ({_numbers(places.tolist())})"


def _numbers(numbers: Sequence[int]) -> str:
    """Return `3, 5, 8, 9, 12, ...`."""
    named = ", ".join(map(str, numbers[:_NAMED]))
    return f"{named}, ..." if len(numbers) > _NAMED else named
