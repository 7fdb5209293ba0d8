"""Forecast of the remaining time: from a short calibration on this device or stated rates."""

from __future__ import annotations

import heapq
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from tread_lab.engine.cost.calibration import FLOPS, Speed, affordable, calibrate
from tread_lab.engine.cost.rates import RATES, Rates, rates_of
from tread_lab.records.lab import Lab
from tread_lab.specs.errors import lookup
from tread_lab.specs.evaluation import EvaluationSpec
from tread_lab.specs.run import RunSpec
from tread_lab.sweep.plan.devices import Devices
from tread_lab.sweep.trial.task import Task, done_share

TRIAL_SECONDS = 0.5  # starting a trial in a reused worker, writing its record
_MOST_KINDS = 6  # kinds of runs that are calibrated; the others are taken to be like the first
Kind = tuple[object, ...]


@dataclass(frozen=True)
class RemainingTime:
    """Predicted wall seconds of the open runs; `None` where neither times nor rates are known.

    Attributes:
        source: what the prediction rests on where nothing was timed here.
    """

    seconds: float | None
    open_runs: int
    source: str = ""


@dataclass(frozen=True)
class Forecast:
    """Predicts how long tasks take: in seconds, or in FLOPs where it has no speeds and no rates.

    Attributes:
        speeds: by kind of run, as measured; empty where measuring would cost too much.
        start: seconds until the first run starts.
        rates: of the device, as stated; used where nothing was measured, and always for decoding
            and features.
    """

    lab: Lab
    speeds: Mapping[Kind, Speed] = field(default_factory=dict)
    slots: int = 1
    start: float = 0.0
    rates: Rates | None = None

    def training(self, spec: RunSpec) -> float:
        """Return the seconds of all training steps, or their FLOPs."""
        if self.rates is not None and not self.speeds:
            return self.rates.train_seconds(spec)
        return self._speed(spec).train_seconds(spec)

    def work(self, task: Task) -> float:
        """Return the seconds of a whole run and its evaluations, or their FLOPs."""
        return self.training(task.spec) + self.measuring(task)

    def measuring(self, task: Task, *, still: bool = False) -> float:
        """Return the seconds of the evaluations, or their FLOPs; `still`: of those not done."""
        folder = self.lab.run(task.run)
        specs = [e for e in task.evaluations if not still or not folder.evaluation(e).done]
        return sum(sum(self.parts(task.spec, spec).values()) for spec in specs)

    def parts(self, spec: RunSpec, evaluation: EvaluationSpec) -> dict[str, float]:
        """Return the seconds of one evaluation by kind of work, or the FLOPs of its passes.

        `references` has those of the data set's images.
        """
        if self.rates is None:
            return {"sampling": self._speed(spec).evaluate_seconds(spec, [evaluation])}
        images = self.rates.image_seconds(spec, evaluation)
        shown = {name: s for name, s in images.items() if s and "references" not in name}
        if self.speeds:
            return {"sampling": self._speed(spec).evaluate_seconds(spec, [evaluation]), **shown}
        return {"sampling": self.rates.pass_seconds(spec, evaluation), **shown}

    def references(self, spec: RunSpec, evaluation: EvaluationSpec) -> dict[str, float]:
        """Return the seconds of decoding and describing the data set's images, once for a lab."""
        images = {} if self.rates is None else self.rates.image_seconds(spec, evaluation)
        ending = " of references"
        return {n.removesuffix(ending): s for n, s in images.items() if s and n.endswith(ending)}

    def seconds(self, task: Task) -> float | None:
        """Return the seconds left of a task in its slot; `None` if nothing was timed here."""
        return self._left(task) if self.speeds else None

    def _left(self, task: Task) -> float:
        left = 1 - done_share(self.lab, task)
        measuring = self.measuring(task, still=True)
        return left * self.training(task.spec) + measuring + TRIAL_SECONDS

    def total(self, todo: Sequence[Task]) -> RemainingTime:
        """Return the wall time until the last task has ended."""
        if not todo:
            return RemainingTime(0.0, 0)
        if not self.speeds and self.rates is None:
            return RemainingTime(None, len(todo))
        once: dict[object, float] = {}
        for task in todo:
            for evaluation in task.evaluations:
                references = sum(self.references(task.spec, evaluation).values())
                once[task.spec.data] = max(references, once.get(task.spec.data, 0.0))
        seconds = makespan([self._left(task) for task in todo], self.slots) + self.start
        source = "" if self.speeds or self.rates is None else self.rates.device
        return RemainingTime(seconds + sum(once.values()), len(todo), source)

    def device_seconds(self, todo: Sequence[Task]) -> tuple[float, float] | None:
        """Return the seconds of devices that training and evaluations of open tasks take.

        Each run has a device to itself; `None` where neither times nor rates are known.
        """
        if not self.speeds and self.rates is None:
            return None
        train = sum((1 - done_share(self.lab, t)) * self.training(t.spec) for t in todo)
        once: dict[object, float] = {}
        for task in todo:
            for evaluation in task.evaluations:
                references = sum(self.references(task.spec, evaluation).values())
                once[task.spec.data] = max(references, once.get(task.spec.data, 0.0))
        measuring = sum(self.measuring(task, still=True) for task in todo)
        return train, measuring + sum(once.values())

    def _speed(self, spec: RunSpec) -> Speed:
        if not self.speeds:
            return FLOPS
        return self.speeds.get(kind_of(spec)) or next(iter(self.speeds.values()))


def kind_of(spec: RunSpec) -> Kind:
    """Return what decides how long a FLOP takes."""
    return spec.model, spec.precision, spec.train.batch


def forecast(
    lab: Lab, todo: Sequence[Task], devices: Devices, *, start: float, rates: str | None = None
) -> Forecast:
    """Calibrate on the first run of each kind, if a step of every one is cheap.

    Nothing is measured for devices of other machines, of which this one's would not tell.

    Args:
        start: seconds until the first run starts.
        rates: a device that is not here, whose stated rates are taken instead.

    Raises:
        UserError: no rates are stated for it.
    """
    if rates is not None:
        return Forecast(lab, {}, devices.slots, start, lookup(RATES, rates, "--device-rates"))
    kinds: dict[Kind, RunSpec] = {}
    for task in todo:
        kinds.setdefault(kind_of(task.spec), task.spec)
    specs = dict(list(kinds.items())[:_MOST_KINDS])
    speeds: list[Speed] = []
    if devices.local is not None and all(affordable(spec) for spec in kinds.values()):
        import torch

        torch.set_num_threads(1)
        speeds = calibrate(list(specs.values()), devices.local, slots=min(devices.slots, len(todo)))
    stated = rates_of(devices.type, devices.kinds[0].name)
    return Forecast(lab, dict(zip(specs, speeds)), devices.slots, start, stated)


def starts(seconds: Sequence[float], slots: int) -> list[float]:
    """Return the second in which each run starts, from the seconds that each one takes."""
    free, begins = [0.0] * max(slots, 1), []
    for length in seconds:
        begin = heapq.heappop(free)
        begins.append(begin)
        heapq.heappush(free, begin + length)
    return begins


def makespan(seconds: Sequence[float], slots: int) -> float:
    """Return the second in which the last run ends."""
    begins = starts(seconds, slots)
    return max((begin + length for begin, length in zip(begins, seconds)), default=0.0)
