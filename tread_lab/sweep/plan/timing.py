"""Speeds of runs to come: of earlier runs, of a few steps, at an assumed share of a peak."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from tread_lab.engine.compiled import EAGER, arithmetic
from tread_lab.engine.cost.calibration import STEPS, trial_batch
from tread_lab.engine.cost.sampling import pass_flops
from tread_lab.engine.cost.speed import (
    Kind,
    Rates,
    Speed,
    fitted,
    fp32_block_on,
    kind_of,
    step_flops,
)
from tread_lab.engine.device import PEAK_FLOPS
from tread_lab.records.durable import modified
from tread_lab.records.lab import Lab
from tread_lab.records.metric_names import STEP_SECONDS
from tread_lab.records.run_folder import RunFolder
from tread_lab.records.status import RunState
from tread_lab.specs.decode import encode
from tread_lab.specs.errors import UserError
from tread_lab.specs.evaluation import EvaluationSpec, end_signature
from tread_lab.specs.run import RunSpec
from tread_lab.specs.units import counted
from tread_lab.sweep.plan.devices import Devices
from tread_lab.sweep.trial.task import Task

_NEWEST = 100  # runs of a lab that are looked at
_ENOUGH = 8  # runs of a kind
_SHORT_FLOPS = 1e12  # of a sweep that a CPU core trains in a minute
_MOST_KINDS = 6  # kinds of runs that are timed; the others are taken to be like the first of them
_Run = tuple[RunFolder, RunSpec, float]  # with the seconds of a step


@dataclass(frozen=True)
class Timing:
    """How fast runs of one kind are, and where that is from.

    Attributes:
        source: a phrase such as `from 3 earlier runs on H100`.
        evaluations: by setting, seconds for a FLOP of the passes, all else included.
        stated: nothing was timed.
        spread: the least and the greatest factor on the predicted time of steps.
    """

    speed: Speed
    source: str = ""
    evaluations: Mapping[str, float] = field(default_factory=dict)
    stated: bool = False
    spread: tuple[float, float] = (1.0, 1.0)

    @staticmethod
    def of_rates(rates: Rates, spec: RunSpec, share: float) -> Timing:
        """Return what stated rates say of a run on so many devices, or on a part of one."""
        spread = rates.spread(spec, share)
        source = f"assumed at a share of the peak of {rates.device}"
        return Timing(rates.speed(spec, share), source, stated=True, spread=spread)


def timings(
    lab: Lab, todo: Sequence[Task], devices: Devices, rates: Rates | None, share: float
) -> dict[Kind, Timing]:
    """Return the speeds of earlier runs, of a few steps for kinds that have none, else of the rates
    that are stated for the devices.

    Args:
        share: devices of each run, a part of one where several runs have it.

    Raises:
        UserError: a run whose steps cost next to nothing lacks something, such as its data.
    """
    found = _recorded(lab, todo, devices, devices.share() / share)
    untimed: dict[Kind, RunSpec] = {}
    for task in todo:
        if (kind := kind_of(task.spec)) not in found:
            untimed.setdefault(kind, task.spec)
    # Other processes import for seconds before they time anything: too long for a short sweep.
    work = sum(task.spec.train.steps * step_flops(task.spec) for task in todo)
    at_once = min(devices.slots, len(todo)) if work > _SHORT_FLOPS else 1
    found |= _measured(untimed, devices, rates, at_once, share)
    for kind, spec in untimed.items():
        if rates is not None and kind not in found:
            found[kind] = Timing.of_rates(rates, spec, share)
    return found


def _recorded(lab: Lab, todo: Sequence[Task], devices: Devices, part: float) -> dict[Kind, Timing]:
    """Return the speeds of earlier runs.

    Args:
        part: of their seconds of a FLOP, where fewer runs share a device than then.
    """
    asked = {setting(spec): spec for task in todo for spec in task.evaluations}
    found = {}
    for kind, runs in earlier_runs(lab, todo, devices).items():
        fp32_block = fp32_block_on(devices.type)
        speed = fitted([(step_flops(spec, fp32_block), seconds) for _, spec, seconds in runs])
        speed = replace(speed, per_flop=part * speed.per_flop, fp32_block=fp32_block)
        source = f"from {counted(len(runs), 'earlier run')} on {_short(devices)}"
        evaluations = {name: part * value for name, value in _evaluations(runs, asked).items()}
        found[kind] = Timing(speed, source, evaluations)
    return found


def earlier_runs(lab: Lab, todo: Sequence[Task], devices: Devices) -> dict[Kind, list[_Run]]:
    """Return completed runs of the tasks' kinds on devices like these, with their step times.

    A run counts if it had the same model of device, as many neighbours and threads, and the same
    compiler. Of a kind the newest eight count, among the newest hundred of the lab.
    """
    kinds = {kind_of(task.spec) for task in todo}
    found: dict[Kind, list[_Run]] = {}
    paths = lab.root.glob("runs/*/result.json")
    results = [(modified(path) or 0.0, path) for path in paths]  # one may be gone since
    for _, path in sorted(results, reverse=True)[:_NEWEST]:
        folder = RunFolder(path.parent)
        seconds: float | None = ((folder.result() or {}).get("metrics") or {}).get(STEP_SECONDS)
        if seconds is None or folder.state() is not RunState.COMPLETED:
            continue
        spec = folder.readable_spec()
        if spec is None or kind_of(spec) not in kinds or not _is_alike(folder, spec, devices):
            continue
        runs = found.setdefault(kind_of(spec), [])
        if len(runs) < _ENOUGH:
            runs.append((folder, spec, seconds))
    return found


def setting(evaluation: EvaluationSpec) -> str:
    """Return what an evaluation is, whatever step of a run it measures."""
    return end_signature(encode(evaluation))


def _is_alike(folder: RunFolder, spec: RunSpec, devices: Devices) -> bool:
    """Return whether the last attempt at a run had such a device, as much of it and the compiler of
    now, and its median is of steps after the warm-up, all alike. Each attempt compiles in its first
    entry of the log; the median leaves out that of the first one, and forgets a minority."""
    origins, attempts = folder.origin(), folder.attempts.read()
    if not origins or not attempts:
        return False
    origin, attempt, on_cpu = origins[-1], attempts[-1], devices.type == "cpu"
    computed = attempt.fingerprint.get(f"blocks of {spec.model.backbone}", EAGER)
    had = origin.get("threads") if on_cpu else None, attempt.runs_per_device, attempt.devices
    has = devices.threads if on_cpu else None, devices.runs_per_device, devices.per_run
    models = {kind.model for kind in devices.kinds if kind.model}
    entries = spec.train.steps / spec.execution.log_every
    warm = entries > 2 * len(attempts) - 1 and len(spec.phases) == 1
    there = origin.get("model", origin.get("device")) in models and had == has
    return there and warm and computed == arithmetic(spec, devices.type)


def _evaluations(runs: Iterable[_Run], asked: Mapping[str, EvaluationSpec]) -> dict[str, float]:
    """Return the median seconds for a FLOP of passes, by those settings that are asked for."""
    found: dict[str, list[float]] = {}
    for folder, spec, _ in runs:
        for evaluation in folder.evaluations():
            tree = evaluation.read() or {}
            name, seconds = end_signature(tree.get("spec") or {}), tree.get("seconds")
            if seconds is not None and name in asked and (flops := pass_flops(spec, asked[name])):
                found.setdefault(name, []).append(seconds / flops)
    return {name: statistics.median(values) for name, values in found.items()}


def _measured(
    specs: Mapping[Kind, RunSpec],
    devices: Devices,
    rates: Rates | None,
    at_once: int,
    share: float,
) -> dict[Kind, Timing]:
    """Return the speeds of a few steps, of fewer images where a step of all would take long."""
    of_gpu = rates if devices.type != "cpu" else None
    batches = {
        kind: trial_batch(spec, 1 / of_gpu.speed(spec).per_flop if of_gpu else None)
        for kind, spec in specs.items()
    }
    cheap = [kind for kind, images in batches.items() if images]
    trials = [
        replace(specs[kind], train=replace(specs[kind].train, batch=batches[kind]))
        for kind in cheap[:_MOST_KINDS]
    ]
    try:
        speeds = devices.time(trials, at_once=at_once) if trials else None
    except (UserError, RuntimeError):
        if all(trial.train.batch == specs[kind].train.batch for kind, trial in zip(cheap, trials)):
            raise
        speeds = None
    if not speeds:
        return {}
    where = f"this {_short(devices)}" if devices.local is not None else _short(devices)
    timed = []
    for kind, trial, speed in zip(cheap, trials, speeds):
        images, all_images = trial.train.batch, specs[kind].train.batch
        part = f" of {counted(images, 'image')}" if images < all_images else ""
        # What the host does of a step is not shared, neither by devices nor by runs on one.
        speed = replace(speed, per_flop=speed.per_flop / share)
        timed.append(Timing(speed, f"from {STEPS} steps{part} on {where}"))
    return dict.fromkeys(cheap, timed[0]) | dict(zip(cheap, timed))


def _short(devices: Devices) -> str:
    """Return `H100`, `CPU`, or the whole name of a device without a datasheet here."""
    if devices.type == "cpu":
        return "CPU"
    name = devices.kinds[0].name
    return next((short for short in PEAK_FLOPS if short in name), name)
