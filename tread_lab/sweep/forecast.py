"""Time and disk of open runs: by the lab's last runs, else at an assumed share of the peak."""

from __future__ import annotations

import heapq
import shutil
import statistics
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from tread_lab.config.data import DataSpec
from tread_lab.config.errors import UserError
from tread_lab.config.evaluation import SamplesSpec
from tread_lab.config.run import RunSpec
from tread_lab.config.units import amount, counted
from tread_lab.cost.blocks import FP32
from tread_lab.cost.training import cost, pass_flops
from tread_lab.hardware import PEAK_FLOPS, SLOWER, Devices, of_gpu
from tread_lab.records.durable import digest, modified
from tread_lab.records.lab import Lab
from tread_lab.records.metric_names import STEP_SECONDS
from tread_lab.records.run_folder import RunFolder
from tread_lab.records.run_state import RunState
from tread_lab.sweep.task import Task, kept_share
from tread_lab.train.joining import systems_of

ASSUMED = 0.3  # of the dense peak, where the lab has no run of this kind on this device
OF_BF16 = {"bf16": 1.0, "fp16": 1.0, "tf32": 0.5}  # peak of a precision over that of bf16
_NEWEST = 100  # runs of a lab that are looked at
_ENOUGH = 8  # runs of a kind
Kind = tuple[object, ...]


@dataclass(frozen=True)
class RemainingTime:
    """Predicted wall-clock and device seconds of the open runs; `None` if unknown.

    Attributes:
        source: basis of the prediction: `from 3 earlier runs`, or an assumption.
        trained: number of open runs that only need evaluations.
    """

    seconds: float | None
    open_runs: int
    source: str = ""
    trained: int = 0
    device_seconds: float = 0.0


def task_flops(task: Task) -> int:
    """Return the FLOPs of training and of the network calls of all evaluations."""
    return cost(task.spec).train_flops + sum(pass_flops(task.spec, e) for e in task.evaluations)


def evaluation_flops_left(lab: Lab, task: Task, measured: float = 0.0) -> float:
    """Return the FLOPs of open evaluations, minus the share `measured` of the first."""
    folder = lab.run(task.run)
    begun = folder.path.exists()
    specs = [e for e in task.evaluations if not begun or not folder.evaluation(e).done]
    first, *others = [pass_flops(task.spec, spec) for spec in specs] or [0]
    return (1 - measured) * first + sum(others)


def kind_of(spec: RunSpec) -> Kind:
    """Return the settings that determine the time per FLOP on a device, without routes."""
    shape = (spec.data.channels, spec.data.size)
    joined = tuple(system.files(spec) for system in systems_of(spec))
    execution = (spec.execution.micro_batch, *spec.execution.kernels)
    return spec.model, shape, spec.precision, spec.train.batch, type(spec.loss), joined, *execution


@dataclass(frozen=True)
class Speed:
    """Seconds of a training step on one slot: a fixed part, and a part for each FLOP.

    Attributes:
        source: a phrase such as `from 3 earlier runs`.
    """

    overhead: float
    per_flop: float
    source: str = ""

    def train_seconds(self, spec: RunSpec) -> float:
        """Return the seconds of all training steps."""
        return spec.train.steps * self.overhead + cost(spec).train_flops * self.per_flop

    def seconds_left(self, lab: Lab, task: Task) -> float:
        """Return the remaining seconds of a task, with evaluations as fast per FLOP as training."""
        training = (1 - kept_share(lab, task)) * self.train_seconds(task.spec)
        return training + self.per_flop * evaluation_flops_left(lab, task)


def forecast(lab: Lab, todo: Sequence[Task], devices: Devices) -> RemainingTime:
    """Predict the time until the last task ends."""
    kinds = [kind_of(task.spec) for task in todo]
    found = {kind: fitted(steps) for kind, steps in earlier_steps(lab, kinds, devices).items()}
    for kind, task in zip(kinds, todo):
        if kind not in found and (speed := _assumed(task.spec, devices)) is not None:
            found[kind] = speed
    if not found.keys() >= {*kinds}:
        return RemainingTime(None, len(todo))
    seconds = [found[kind].seconds_left(lab, task) for kind, task in zip(kinds, todo)]
    return RemainingTime(
        makespan(seconds, devices.slots),
        len(todo),
        ", ".join(dict.fromkeys(speed.source for speed in found.values())),
        sum(kept_share(lab, task) == 1.0 for task in todo),
        devices.share * sum(seconds),
    )


def _assumed(spec: RunSpec, devices: Devices) -> Speed | None:
    """Return a speed by the datasheet; `None` where the peak of the precision is not known."""
    name = devices.kinds[0].model
    peak = of_gpu(SLOWER | PEAK_FLOPS, name) if devices.type == "cuda" else None
    if peak is None or spec.precision not in OF_BF16:
        return None
    rate = ASSUMED * OF_BF16[spec.precision] * peak * devices.share
    return Speed(0.0, 1 / rate, f"assumed at {ASSUMED:.0%} of the peak of {name}")


def fitted(steps: Sequence[tuple[float, float]]) -> Speed:
    """Return a least-squares line through FLOPs and seconds, with nonnegative coefficients.

    With a single FLOP count the fixed part is 0.

    Args:
        steps: pairs of FLOPs and seconds, at least one.
    """
    flops, seconds = (statistics.fmean(values) for values in zip(*steps))
    slope = seconds / flops
    if len({count for count, _ in steps}) > 1:
        slope = min(max(statistics.linear_regression(*zip(*steps)).slope, 0.0), slope)
    source = f"from {counted(len(steps), 'earlier run')}"
    return Speed(max(seconds - slope * flops, 0.0), slope, source)


def earlier_steps(
    lab: Lab, kinds: Collection[Kind], devices: Devices
) -> dict[Kind, list[tuple[float, float]]]:
    """Return FLOPs and seconds per step of completed runs of these kinds on these device models.

    Uses the newest eight runs per kind among the lab's newest hundred.
    """
    found: dict[Kind, list[tuple[float, float]]] = {}
    paths = lab.root.glob("runs/*/result.json")
    results = [(modified(path) or 0.0, path) for path in paths]  # one may be gone since
    for _, path in sorted(results, reverse=True)[:_NEWEST]:
        folder = RunFolder(path.parent)
        seconds: float | None = ((folder.result() or {}).get("metrics") or {}).get(STEP_SECONDS)
        spec = folder.readable_spec()
        if seconds is None or spec is None or folder.state() is not RunState.COMPLETED:
            continue
        if (kind := kind_of(spec)) in kinds and _is_alike(folder, spec, devices):
            flops = cost(spec).step.flops * spec.train.batch
            found.setdefault(kind, []).append((float(flops), seconds))
    return {kind: steps[:_ENOUGH] for kind, steps in found.items()}


def _is_alike(folder: RunFolder, spec: RunSpec, devices: Devices) -> bool:
    """Return whether the last attempt at a run had such a device and as much of it, and its median
    is of steps after the warm-up, all alike."""
    origins, attempts = folder.origin(), folder.attempts()
    if not origins or not attempts:
        return False
    origin, attempt, on_cpu = origins[-1], attempts[-1], devices.type == "cpu"
    had = origin.get("threads") if on_cpu else None, attempt.runs_per_device, attempt.devices
    has = devices.threads if on_cpu else None, devices.runs_per_device, devices.per_run
    entries = spec.train.steps / spec.execution.log_every
    warm = entries > 2 * len(attempts) - 1 and len(spec.phases) == 1
    return warm and origin.get("model") in {kind.model for kind in devices.kinds} and had == has


class TrainSeconds:
    """Predicts the training seconds of a run from the lab's earlier runs of its kind.

    Args:
        stored: speeds of the stored plan; they take precedence, so that its runs keep their steps.
    """

    def __init__(self, lab: Lab, devices: Devices, stored: Mapping[str, Sequence[float]]) -> None:
        self._lab, self._devices = lab, devices
        self.stored = {kind: list(parts) for kind, parts in stored.items()}

    def __call__(self, spec: RunSpec) -> float:
        if (name := name_of_kind(spec)) not in self.stored:
            kind = kind_of(spec)
            steps = earlier_steps(self._lab, {kind}, self._devices).get(kind, ())
            if len({flops for flops, _ in steps}) < 2:
                raise UserError(
                    "match: train_seconds requires timed runs of this network in the lab, dense"
                    f" and routed, got {len(steps)}. Try match=train_flops first."
                )
            speed = fitted(steps)
            self.stored[name] = [speed.overhead, speed.per_flop]
        overhead, per_flop = self.stored[name]
        return Speed(overhead, per_flop).train_seconds(spec)


def name_of_kind(spec: RunSpec) -> str:
    """Return the name under which a plan stores the speed of runs of this kind."""
    return digest(repr(kind_of(spec)))


def makespan(seconds: Iterable[float], slots: int) -> float:
    """Return the end of the last run, in seconds; each run starts in the first free slot."""
    free = [0.0] * max(slots, 1)
    for length in seconds:
        heapq.heapreplace(free, free[0] + length)
    return max(free)


def disk_bytes(tasks: Iterable[Task]) -> int:
    """Return an upper bound on the bytes of checkpoints, snapshots and samples of `tasks`."""
    return sum(_checkpoint_bytes(task) + _sample_bytes(task) for task in tasks)


def disk_line(tasks: Iterable[Task], lab: Lab) -> str:
    """Return a line with disk use of the open runs and free space."""
    folder = next(path for path in (lab.root, *lab.root.parents) if path.exists())
    free = amount(shutil.disk_usage(folder).free)
    return f"disk: at most {amount(disk_bytes(tasks))}; {free} free in {lab.root}"


def _checkpoint_bytes(task: Task) -> int:
    plan = task.spec.execution
    kept, own = {*plan.keep_steps, *task.kept_steps}, cost(task.spec)
    snapshots = task.spec.train.ema.snapshots * (own.averages - 1) * FP32 * own.parameters
    return (plan.keep_checkpoints + len(kept) + 1) * own.checkpoint_bytes + snapshots


def _sample_bytes(task: Task) -> int:
    counts = [spec.images for spec in task.evaluations if isinstance(spec, SamplesSpec)]
    return sum(counts) * _image_bytes(task.spec.data)


def _image_bytes(data: DataSpec) -> int:
    """Return the bytes of a sample as uint8; of a latent, decoded by an autoencoder like SD's."""
    colours = 3 if data.holds.latents else data.channels
    return colours * (data.size * data.holds.enlarges) ** 2
