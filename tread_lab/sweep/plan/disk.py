"""The disk that planned runs take, and the room that is left where the lab lies."""

from __future__ import annotations

import shutil
from collections.abc import Iterable

from tread_lab.config.data import DataSpec
from tread_lab.config.evaluation import SamplesSpec
from tread_lab.config.units import amount
from tread_lab.cost.training import cost
from tread_lab.records.lab import Lab
from tread_lab.sweep.task import Task


def disk_bytes(tasks: Iterable[Task]) -> int:
    """Return the bytes of the checkpoints and samples that `tasks` leave on the disk at most."""
    return sum(_checkpoint_bytes(task) + _sample_bytes(task) for task in tasks)


def disk_line(tasks: Iterable[Task], lab: Lab) -> str:
    """Return what the open runs leave on the disk, and what is free."""
    folder = next(path for path in (lab.root, *lab.root.parents) if path.exists())
    free = amount(shutil.disk_usage(folder).free)
    return f"disk: at most {amount(disk_bytes(tasks))}; {free} free in {lab.root}"


def _checkpoint_bytes(task: Task) -> int:
    plan = task.spec.execution
    kept = {*plan.keep_steps, *task.kept_steps}
    return (plan.keep_checkpoints + len(kept) + 1) * cost(task.spec).checkpoint_bytes


def _sample_bytes(task: Task) -> int:
    counts = [spec.count for spec in task.evaluations if isinstance(spec, SamplesSpec)]
    return sum(counts) * _image_bytes(task.spec.data)


def _image_bytes(data: DataSpec) -> int:
    """Return the bytes of a sample as uint8; of a latent, decoded by an autoencoder like SD's."""
    colours = 3 if data.holds.latents else data.channels
    return colours * (data.size * data.holds.enlarges) ** 2
