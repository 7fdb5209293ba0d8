"""Speeds of runs to come, and where each is from: earlier runs, a few steps, stated rates."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from tread_lab.engine.cost.calibration import STEPS, trial_batch
from tread_lab.engine.cost.rates import PROBE, Rates
from tread_lab.engine.cost.speed import Kind, Speed, kind_of, step_flops
from tread_lab.engine.device import PEAK_FLOPS
from tread_lab.records.lab import Lab
from tread_lab.specs.errors import UserError
from tread_lab.specs.run import RunSpec
from tread_lab.specs.units import counted
from tread_lab.sweep.plan.devices import Devices
from tread_lab.sweep.plan.earlier_runs import earlier_runs
from tread_lab.sweep.trial.task import Task

_SHORT_FLOPS = 1e12  # of a sweep that a CPU core trains in a minute
_BUSY = 2.0  # times as long by the wall clock as steps compute: others had the CPU
_MOST_KINDS = 6  # kinds of runs that are timed; the others are taken to be like the first of them


@dataclass
class Timings:
    """What is known of the kinds of some runs; a kind without speed is predicted by stated rates.

    Attributes:
        speeds: seconds of steps and passes; of passes in fp32.
        sources: a phrase for each kind, such as `from 3 earlier runs on H100`.
        evaluations: by kind and setting, seconds for a FLOP of the passes, all else included.
    """

    speeds: dict[Kind, Speed] = field(default_factory=dict)
    sources: dict[Kind, str] = field(default_factory=dict)
    evaluations: dict[tuple[Kind, str], float] = field(default_factory=dict)


def timings(lab: Lab, todo: Sequence[Task], devices: Devices, rates: Rates | None) -> Timings:
    """Return the speeds of earlier runs, and of a few steps for kinds that have none.

    Args:
        rates: those that are stated for the devices.

    Raises:
        UserError: a run whose steps cost next to nothing lacks something, such as its data.
    """
    found = _recorded(lab, todo, devices, rates)
    specs: dict[Kind, RunSpec] = {}
    for task in todo:
        specs.setdefault(kind_of(task.spec), task.spec)
    untimed = {kind: spec for kind, spec in specs.items() if kind not in found.speeds}
    _time(found, untimed, devices, rates, at_once=_at_once(todo, devices))
    return found


def _at_once(todo: Sequence[Task], devices: Devices) -> int:
    """Return how many processes time steps side by side, as the runs will be.

    Other processes import for seconds before they time anything: too long for a short sweep.
    """
    work = sum(task.spec.train.steps * step_flops(task.spec) for task in todo)
    return min(devices.slots, len(todo)) if work > _SHORT_FLOPS else 1


def _recorded(lab: Lab, todo: Sequence[Task], devices: Devices, rates: Rates | None) -> Timings:
    found, where = Timings(), _short(devices)
    for kind, runs in earlier_runs(lab, todo, devices).items():
        speed, precision = Speed.of_steps(runs.steps, devices.type), str(kind[2])
        if rates is not None and devices.type != "cpu":
            ratio = rates.training[precision] / rates.sampling[PROBE]
            speed = replace(speed, per_call_flop=speed.per_call_flop * ratio)
        found.speeds[kind] = speed
        found.sources[kind] = f"from {counted(len(runs.steps), 'earlier run')} on {where}"
        for name, values in runs.evaluations.items():
            found.evaluations[kind, name] = statistics.median(values)
    return found


def _time(
    found: Timings,
    untimed: Mapping[Kind, RunSpec],
    devices: Devices,
    rates: Rates | None,
    *,
    at_once: int,
) -> None:
    """Add the speeds of a few steps, of fewer images where a step of all would take long."""
    batches = {kind: _images(spec, devices, rates) for kind, spec in untimed.items()}
    timed = [kind for kind, images in batches.items() if images][:_MOST_KINDS]
    specs = [
        replace(untimed[kind], train=replace(untimed[kind].train, batch=batches[kind]))
        for kind in timed
    ]
    try:
        speeds = devices.time(specs, at_once=at_once) if specs else None
    except (UserError, RuntimeError):
        if all(batches[kind] == untimed[kind].train.batch for kind in timed):
            raise
        speeds = None
    for kind, speed in zip(timed, speeds or ()):
        found.speeds[kind] = speed
        busy = speed.load >= _BUSY
        found.sources[kind] = _steps(untimed[kind], batches[kind], devices, busy=busy)
    for kind, images in batches.items():
        if speeds and images and kind not in found.speeds:
            found.speeds[kind], found.sources[kind] = speeds[0], found.sources[timed[0]]


def _images(spec: RunSpec, devices: Devices, rates: Rates | None) -> int:
    rate = None if rates is None or devices.type == "cpu" else rates.training[spec.precision]
    return trial_batch(spec, rate)


def _steps(spec: RunSpec, images: int, devices: Devices, *, busy: bool) -> str:
    """Return `from 6 steps on this CPU`; of a busy one what the seconds leave out, too."""
    part = f" of {counted(images, 'image')}" if images < spec.train.batch else ""
    words = ["this"] if devices.local is not None else ["a"] if busy else []
    words += ["busy"] if busy else []
    where = " ".join([*words, _short(devices)])
    return f"from {STEPS} steps{part} on {where}" + (" as if it were idle" if busy else "")


def _short(devices: Devices) -> str:
    """Return `H100`, `CPU`, or the whole name of a device without a datasheet here."""
    if devices.type == "cpu":
        return "CPU"
    name = devices.kinds[0].name
    return next((short for short in PEAK_FLOPS if short in name), name)
