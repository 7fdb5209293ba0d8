"""Predicts the disk that runs need, and measures the room that is left where the lab lies."""

from __future__ import annotations

import shutil
from collections.abc import Hashable, Iterable, Sequence
from pathlib import Path

from tread_lab.engine.cost.sampling import reference_images
from tread_lab.engine.cost.training import cost
from tread_lab.engine.system import files_read
from tread_lab.records.lab import Lab
from tread_lab.specs.data import DataSpec
from tread_lab.specs.evaluation import SamplesSpec
from tread_lab.specs.metrics import METRICS, OWN_FEATURES
from tread_lab.sweep.task import Task

INCEPTION_BYTES = 2048 * 4  # features of one image
DINOV2_BYTES = 1024 * 4
OWN_BYTES = 128 * 8  # of the embedded images' classifier


def disk_need(tasks: Sequence[Task], at_once: int = 1) -> dict[str, int]:
    """Return the bytes that `tasks` leave on the disk at most, of which `at_once` are carried out
    at the same time, by what they are; records and pictures are small beside them.

    Images of evaluations under way lie beside the samples until these are whole.
    """
    checkpoints = samples = 0
    under_way: list[int] = []
    compared: dict[tuple[object, ...], tuple[DataSpec, SamplesSpec]] = {}
    for task in tasks:
        plan, data = task.spec.execution, task.spec.data
        kept = {*plan.keep_steps, *task.kept_steps}
        count = plan.keep_checkpoints + len(kept) + 1
        checkpoints += count * cost(task.spec).checkpoint_bytes
        sizes = _samples_bytes(task)
        samples += sum(sizes)
        under_way.append(max(sizes, default=0))
        sets = [e for e in task.evaluations if isinstance(e, SamplesSpec)]
        compared |= {(data, e.reference, e.metrics): (data, e) for e in sets}
    references: dict[tuple[object, ...], int] = {}  # the dearest of each set of images
    for data, spec in compared.values():
        one = _feature_bytes(data, (m for m in spec.metrics if METRICS[m].compares))
        size, images = reference_images(data, spec) * one, (data, spec.reference)
        references[images] = max(size, references.get(images, 0))
    caches: dict[Hashable, int] = {}
    for system, run in files_read(task.spec for task in tasks):
        caches |= system.cache_bytes(run)
    need = {
        "checkpoints": checkpoints,
        "samples": samples,
        "samples under way": sum(sorted(under_way)[-at_once:]),
        "features of references": sum(references.values()),
        "encoders' features": sum(caches.values()),
    }
    return {what: size for what, size in need.items() if size}


def largest_file(tasks: Iterable[Task]) -> int:
    """Return the bytes of the largest single file that `tasks` write."""
    sizes = ((cost(t.spec).checkpoint_bytes, *_samples_bytes(t)) for t in tasks)
    return max(map(max, sizes), default=0)


def _samples_bytes(task: Task) -> list[int]:
    sets = (e for e in task.evaluations if isinstance(e, SamplesSpec))
    return [spec.count * image_bytes(task.spec.data) for spec in sets]


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
