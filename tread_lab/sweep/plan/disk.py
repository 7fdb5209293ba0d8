"""Predicts the disk that runs need, and measures the room that is left where the lab lies."""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tread_lab.data.source import open_data
from tread_lab.engine.cost.images import described
from tread_lab.engine.cost.training import cost
from tread_lab.records.lab import Lab
from tread_lab.specs.data import DataSpec
from tread_lab.specs.errors import UserError
from tread_lab.specs.evaluation import SamplesSpec
from tread_lab.specs.metrics import METRICS
from tread_lab.specs.run import RunSpec
from tread_lab.sweep.trial.task import Task

REFERENCES = 10_000  # held-out images at most whose features are kept
INCEPTION_BYTES = 2048 * 4  # features of one image
OWN_BYTES = 128 * 8  # of the embedded images' classifier


@dataclass(frozen=True)
class DiskNeed:
    """Bytes that runs leave on the disk at most; records and pictures are small beside them.

    Attributes:
        targets: the features that REPA aligns with, where a cache keeps them.
        largest: the largest single file.
    """

    checkpoints: int = 0
    samples: int = 0
    references: int = 0
    targets: int = 0
    largest: int = 0

    @property
    def total(self) -> int:
        return self.checkpoints + self.samples + self.references + self.targets


def disk_need(tasks: Sequence[Task]) -> DiskNeed:
    """Return what the checkpoints, samples and kept features of `tasks` will take."""
    checkpoints = samples = largest = 0
    references: dict[DataSpec, int] = {}
    for task in tasks:
        plan, one = task.spec.execution, cost(task.spec).checkpoint_bytes
        kept = {*plan.keep_steps, *task.kept_steps}
        checkpoints += (plan.keep_checkpoints + len(kept) + 1) * one
        sets = [e for e in task.evaluations if isinstance(e, SamplesSpec)]
        sizes = [spec.count * image_bytes(task.spec.data) for spec in sets]
        samples += sum(sizes)
        largest = max(largest, one, *sizes)
        metrics = {metric for spec in sets for metric in described(spec)}
        if metrics:
            features = REFERENCES * _feature_bytes(task.spec.data, metrics)
            references[task.spec.data] = max(features, references.get(task.spec.data, 0))
    kinds = {(t.spec.data, t.spec.tokens, repa_images(t.spec)): t.spec for t in tasks}
    targets = sum(target_bytes(spec) for spec in kinds.values())
    return DiskNeed(checkpoints, samples, sum(references.values()), targets, largest)


def repa_images(spec: RunSpec) -> tuple[str, str] | None:
    """Return what decides the features of REPA beside the data: encoder and target."""
    return None if spec.repa is None else (spec.repa.encoder, spec.repa.target)


def target_bytes(spec: RunSpec) -> int:
    """Return the size of a run's cache of REPA's features: fp16, N T E of them.

    Data that cannot be read count as none; the run is refused for that before it starts.
    """
    if spec.repa is None or not spec.data.holds.latents:
        return 0
    with contextlib.suppress(UserError):
        return 2 * len(open_data(spec.data, "train")) * spec.tokens * spec.repa.features
    return 0


def image_bytes(data: DataSpec) -> int:
    """Return the bytes of one sample as uint8; of a latent, decoded by an autoencoder like SD's."""
    holds = data.holds
    colours = 3 if holds.latents else data.channels
    return colours * (data.size * holds.enlarges) ** 2


def _feature_bytes(data: DataSpec, metrics: set[str]) -> int:
    inception = data.holds.latents or any(METRICS[m].features == "inception" for m in metrics)
    return INCEPTION_BYTES if inception else OWN_BYTES


def room(lab: Lab) -> int:
    """Return the bytes that may still be written where the lab lies or will lie."""
    folder: Path = lab.root
    while not folder.exists():
        folder = folder.parent
    return shutil.disk_usage(folder).free
