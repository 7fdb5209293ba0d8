"""Predicts the disk that runs need, and measures the room that is left where the lab lies."""

from __future__ import annotations

import shutil
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from tread_lab.engine.cost.sampling import reference_images
from tread_lab.engine.cost.training import cost
from tread_lab.engine.system import files_read
from tread_lab.records.lab import Lab
from tread_lab.specs.data import DataSpec
from tread_lab.specs.evaluation import SamplesSpec
from tread_lab.specs.metrics import METRICS, OWN_FEATURES
from tread_lab.sweep.trial.task import Task

INCEPTION_BYTES = 2048 * 4  # features of one image
DINOV2_BYTES = 1024 * 4
OWN_BYTES = 128 * 8  # of the embedded images' classifier


@dataclass(frozen=True)
class DiskNeed:
    """Bytes that runs leave on the disk at most; records and pictures are small beside them.

    Attributes:
        under_way: images of evaluations under way, which lie beside the samples until these are
            whole.
        targets: what the runs' systems keep in the lab's caches.
        largest: the largest single file.
    """

    checkpoints: int = 0
    samples: int = 0
    under_way: int = 0
    references: int = 0
    targets: int = 0
    largest: int = 0

    @property
    def total(self) -> int:
        return self.checkpoints + self.samples + self.under_way + self.references + self.targets


def disk_need(tasks: Sequence[Task], at_once: int = 1) -> DiskNeed:
    """Return what the checkpoints, samples and kept features of `tasks` will take, of which
    `at_once` are carried out at the same time.
    """
    checkpoints = samples = largest = 0
    under_way: list[int] = []
    compared: dict[tuple[object, ...], tuple[DataSpec, SamplesSpec]] = {}
    for task in tasks:
        plan, one = task.spec.execution, cost(task.spec).checkpoint_bytes
        kept = {*plan.keep_steps, *task.kept_steps}
        checkpoints += (plan.keep_checkpoints + len(kept) + 1) * one
        sets = [e for e in task.evaluations if isinstance(e, SamplesSpec)]
        sizes = [spec.count * image_bytes(task.spec.data) for spec in sets]
        samples += sum(sizes)
        under_way.append(max(sizes, default=0))
        largest = max(largest, one, *sizes)
        data = task.spec.data
        compared |= {(data, e.reference, e.metrics): (data, e) for e in sets}
    references: dict[tuple[object, ...], int] = {}  # the dearest of each set of images
    for data, spec in compared.values():
        one = _feature_bytes(data, (m for m in spec.metrics if METRICS[m].compares))
        size, images = reference_images(data, spec) * one, (data, spec.reference)
        references[images] = max(size, references.get(images, 0))
    caches: dict[Hashable, int] = {}
    for system, run in files_read(task.spec for task in tasks):
        caches |= system.cache_bytes(run)
    return DiskNeed(
        checkpoints=checkpoints,
        samples=samples,
        under_way=sum(sorted(under_way)[-at_once:]),
        references=sum(references.values()),
        targets=sum(caches.values()),
        largest=largest,
    )


def image_bytes(data: DataSpec) -> int:
    """Return the bytes of one sample as uint8; of a latent, decoded by an autoencoder like SD's."""
    holds = data.holds
    colours = 3 if holds.latents else data.channels
    return colours * (data.size * holds.enlarges) ** 2


def _feature_bytes(data: DataSpec, metrics: Iterable[str]) -> int:
    """Return the size of an image's features, of every network that the metrics look through."""
    own = OWN_BYTES if data.source in OWN_FEATURES else INCEPTION_BYTES
    sizes = {"inception": INCEPTION_BYTES, "dinov2": DINOV2_BYTES, "own": own, "any": own}
    return sum({sizes[METRICS[metric].features] for metric in metrics})


def free_bytes(lab: Lab) -> int:
    """Return the bytes that may still be written where the lab lies or will lie."""
    folder: Path = lab.root
    while not folder.exists():
        folder = folder.parent
    return shutil.disk_usage(folder).free
