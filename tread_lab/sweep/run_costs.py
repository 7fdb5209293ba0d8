"""What a run cost: FLOPs, seconds, memory and utilization, as its result records them."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import torch

from tread_lab.config.run import RunSpec
from tread_lab.cost.training import cost
from tread_lab.records import metric_names
from tread_lab.records.log import Entry
from tread_lab.records.run_folder import RunFolder
from tread_lab.train.device import peak_flops


def run_costs(
    folder: RunFolder,
    spec: RunSpec,
    device: torch.device,
    devices: int,
    mean_seconds: float,
    memory: int | None,
) -> dict[str, float]:
    """Return what the run cost, under the names of the record.

    Times of a run that went on on other devices are those that these take for all its steps; there
    are none where these logged too little.

    Args:
        devices: how many like `device` trained it.
        mean_seconds: the training time of all steps over their number.
        memory: the peak in bytes of one, `None` where the device does not tell.
    """
    steps, flops = spec.train.steps, cost(spec).train_flops
    parents = sum(cost(parent).train_flops for parent in spec.ancestors)
    costs: dict[str, float] = {
        metric_names.TRAIN_FLOPS: flops,
        metric_names.FAMILY_FLOPS: parents + flops,
    }
    if not steps:
        return costs
    entries, peak = folder.entries(), peak_flops(device)
    since = _on_other_devices_until(folder.origin())
    own = [entry for entry in entries if entry.time >= since]
    step_seconds = median_step_seconds(own, spec.train.batch)
    if not since:
        step_seconds = step_seconds or mean_seconds
    elif step_seconds is not None:
        mean_seconds = step_seconds
    if memory is not None:
        costs[metric_names.PEAK_MEMORY] = memory
    if step_seconds is None:
        return costs
    costs[metric_names.TRAIN_SECONDS] = mean_seconds * steps
    costs[metric_names.STEP_SECONDS] = step_seconds
    costs[metric_names.IMAGES_PER_S] = spec.train.batch / step_seconds
    if peak is not None:
        costs[metric_names.MFU] = flops / steps / step_seconds / (devices * peak)
    return costs


def _on_other_devices_until(origins: Sequence[Mapping[str, Any]]) -> float:
    """Return when the devices that ended a run took it over from others; 0 if it had one kind."""
    had = [(one.get("devices"), one.get("model")) for one in origins]
    others = [n for n, devices in enumerate(had) if devices != had[-1]]
    since = float(origins[others[-1] + 1].get("started", 0.0)) if others else 0.0
    return round(since, 3)  # as times in logs are


def median_step_seconds(entries: Iterable[Entry], batch: int) -> float | None:
    """Return the median of the logged seconds a step, or `None` before the second entry.

    The first entry is left out, because it holds the warm-up; a median forgets the moments in
    which something else ran on the machine.
    """
    speeds = [entry.value for entry in entries if entry.key == metric_names.TRAIN_IMAGES_PER_S][1:]
    return batch / statistics.median(speeds) if speeds else None
