"""Predicts the disk that runs need, and measures the room that is left where the lab lies."""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from tread_lab.data.captions import captions_of
from tread_lab.data.source import open_data
from tread_lab.engine.cost.images import reference_images
from tread_lab.engine.cost.training import cost
from tread_lab.engine.sample_parts import PART
from tread_lab.records.lab import Lab
from tread_lab.specs.data import DataSpec
from tread_lab.specs.errors import UserError
from tread_lab.specs.evaluation import SamplesSpec
from tread_lab.specs.metrics import METRICS, OWN_FEATURES
from tread_lab.specs.run import RunSpec
from tread_lab.sweep.trial.task import Task

INCEPTION_BYTES = 2048 * 4  # features of one image
DINOV2_BYTES = 1024 * 4
IMAGENET = 1_281_167  # training images
OWN_BYTES = 128 * 8  # of the embedded images' classifier


@dataclass(frozen=True)
class DiskNeed:
    """Bytes that runs leave on the disk at most; records and pictures are small beside them.

    Attributes:
        parts: images and features of evaluations under way, which lie beside the samples until
            these are whole.
        targets: the features that REPA aligns with, and captions' tokens, where a cache keeps them.
        largest: the largest single file.
    """

    checkpoints: int = 0
    samples: int = 0
    parts: int = 0
    references: int = 0
    targets: int = 0
    largest: int = 0

    @property
    def total(self) -> int:
        return self.checkpoints + self.samples + self.parts + self.references + self.targets


def disk_need(tasks: Sequence[Task], at_once: int = 1) -> DiskNeed:
    """Return what the checkpoints, samples and kept features of `tasks` will take.

    Args:
        at_once: how many of them are carried out at the same time.
    """
    checkpoints = samples = largest = 0
    parts: list[int] = []
    compared: dict[tuple[object, ...], tuple[DataSpec, SamplesSpec]] = {}
    for task in tasks:
        plan, one = task.spec.execution, cost(task.spec).checkpoint_bytes
        kept = {*plan.keep_steps, *task.kept_steps}
        checkpoints += (plan.keep_checkpoints + len(kept) + 1) * one
        sets = [e for e in task.evaluations if isinstance(e, SamplesSpec)]
        sizes = [spec.count * image_bytes(task.spec.data) for spec in sets]
        samples += sum(sizes)
        parts.append(max((part_bytes(task.spec.data, spec) for spec in sets), default=0))
        largest = max(largest, one, *sizes)
        data = task.spec.data
        compared |= {(data, e.reference, e.metrics): (data, e) for e in sets}
    kinds = {(t.spec.data, t.spec.tokens, repa_images(t.spec)): t.spec for t in tasks}
    targets = sum(target_bytes(spec) for spec in kinds.values())
    captioned = {(t.spec.data, t.spec.captions): t.spec for t in tasks}
    targets += sum(caption_bytes(spec) for spec in captioned.values())
    return DiskNeed(
        checkpoints=checkpoints,
        samples=samples,
        parts=sum(sorted(parts)[-at_once:]),
        references=_reference_bytes(list(compared.values())),
        targets=targets,
        largest=largest,
    )


def _reference_bytes(compared: Sequence[tuple[DataSpec, SamplesSpec]]) -> int:
    """Return the size of the kept features of all references, the dearest of each set of images."""
    sizes: dict[tuple[object, ...], int] = {}
    for data, spec in compared:
        one = _feature_bytes(data, (m for m in spec.metrics if METRICS[m].compares))
        size, images = reference_images(data, spec) * one, (data, spec.reference)
        sizes[images] = max(size, sizes.get(images, 0))
    return sum(sizes.values())


def repa_images(spec: RunSpec) -> tuple[str, str] | None:
    """Return what decides the features of REPA beside the data: encoder and target."""
    return None if spec.repa is None else (spec.repa.encoder, spec.repa.target)


def target_bytes(spec: RunSpec) -> int:
    """Return the size of a run's cache of REPA's features: fp16, N T E of them.

    Data that cannot be read yet are taken for ImageNet where they have its classes, else for none.
    """
    if spec.repa is None or not spec.data.holds.latents:
        return 0
    images = IMAGENET if spec.data.classes == 1000 else 0
    with contextlib.suppress(UserError):
        images = len(open_data(spec.data, "train"))
    return 2 * images * spec.tokens * spec.repa.features


def caption_bytes(spec: RunSpec) -> int:
    """Return the size of the caches of a run's text tokens: fp16, T E of each caption, of both
    splits and of the empty text."""
    if spec.captions is None:
        return 0
    texts, each = 0, 2 * spec.captions.tokens * spec.captions.width
    with contextlib.suppress(UserError):
        for samples in (open_data(spec.data, "train"), open_data(spec.data, "heldout")):
            texts += sum(map(len, captions_of(samples) or [])) + 1
    return texts * each


def image_bytes(data: DataSpec) -> int:
    """Return the bytes of one sample as uint8; of a latent, decoded by an autoencoder like SD's."""
    holds = data.holds
    colours = 3 if holds.latents else data.channels
    return colours * (data.size * holds.enlarges) ** 2


def part_bytes(data: DataSpec, spec: SamplesSpec) -> int:
    """Return the bytes of an evaluation's parts before they become its samples: every whole 1,024
    images, with their features where a metric needs all of these."""
    whole = (m for m in spec.metrics if METRICS[m].keeps == "features")
    return spec.count // PART * PART * (image_bytes(data) + _feature_bytes(data, whole))


def _feature_bytes(data: DataSpec, metrics: Iterable[str]) -> int:
    """Return the size of an image's features, of every network that the metrics look through."""
    own = OWN_BYTES if data.source in OWN_FEATURES else INCEPTION_BYTES
    sizes = {"inception": INCEPTION_BYTES, "dinov2": DINOV2_BYTES, "own": own, "any": own}
    return sum({sizes[METRICS[metric].features] for metric in metrics})


def room(lab: Lab) -> int:
    """Return the bytes that may still be written where the lab lies or will lie."""
    folder: Path = lab.root
    while not folder.exists():
        folder = folder.parent
    return shutil.disk_usage(folder).free
