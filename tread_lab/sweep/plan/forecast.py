"""Forecast of the remaining time, from the speeds of earlier runs, a few steps or stated rates."""

from __future__ import annotations

import heapq
import zlib
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from tread_lab.engine.cost.rates import PROBE, RATES, Rates, rates_of
from tread_lab.engine.cost.sampling import passes
from tread_lab.engine.cost.speed import FLOPS, Kind, Speed, kind_of
from tread_lab.engine.cost.training import cost
from tread_lab.records.lab import Lab
from tread_lab.specs.errors import UserError, lookup
from tread_lab.specs.evaluation import EvaluationSpec, SamplesSpec
from tread_lab.specs.run import RunSpec
from tread_lab.specs.units import counted
from tread_lab.sweep.plan.devices import Devices
from tread_lab.sweep.plan.earlier_runs import setting
from tread_lab.sweep.plan.timing import timings
from tread_lab.sweep.trial.task import Task, done_share

TRIAL_SECONDS = 0.5  # starting a trial in a reused worker, writing its record


@dataclass(frozen=True)
class RemainingTime:
    """Predicted wall seconds of the open runs; `None` where neither times nor rates are known.

    Attributes:
        source: what the prediction rests on: `from 3 earlier runs on H100`.
        trained: of the open runs, those that are only measured.
    """

    seconds: float | None
    open_runs: int
    source: str = ""
    trained: int = 0


@dataclass(frozen=True)
class Forecast:
    """Predicts how long tasks take: in seconds, or in FLOPs where it has no speeds and no rates.

    Attributes:
        speeds: by kind of run, as measured; a kind that has none is taken to be like the first.
        start: seconds until the first run starts.
        rates: of the device, as stated; used where nothing was measured, and for decoding and
            features of an evaluation that no earlier run had.
        sources: by kind of run, where its speed is from.
        evaluations: by kind of run and setting, seconds for a FLOP of the passes, all included.
        untimed: kinds that are predicted from the rates although others are timed.
    """

    lab: Lab
    speeds: Mapping[Kind, Speed] = field(default_factory=dict)
    slots: int = 1
    start: float = 0.0
    rates: Rates | None = None
    sources: Mapping[Kind, str] = field(default_factory=dict)
    evaluations: Mapping[tuple[Kind, str], float] = field(default_factory=dict)
    untimed: frozenset[Kind] = frozenset()

    def training(self, spec: RunSpec) -> float:
        """Return the seconds of all training steps, or their FLOPs."""
        speed = self._speed(spec)
        if speed is None and self.rates is not None:
            return self.rates.train_seconds(spec)
        return (speed or FLOPS).train_seconds(spec)

    def work(self, task: Task) -> float:
        """Return the seconds of a whole run and its evaluations, or their FLOPs."""
        return self.training(task.spec) + self.measuring(task)

    def longest_first(self, tasks: Sequence[Task]) -> list[Task]:
        """Return the tasks by their work, so that no long one is left to the end alone."""
        return sorted(tasks, key=self.work, reverse=True)

    def measuring(self, task: Task, *, still: bool = False) -> float:
        """Return the seconds of the evaluations, or their FLOPs; `still`: of those not done."""
        folder = self.lab.run(task.run)
        specs = [e for e in task.evaluations if not still or not folder.evaluation(e).done]
        return sum(sum(self.parts(task.spec, spec).values()) for spec in specs)

    def parts(self, spec: RunSpec, evaluation: EvaluationSpec) -> dict[str, float]:
        """Return the seconds of one evaluation by kind of work, or the FLOPs of its passes.

        `references` has those of the images that it compares with.
        """
        per_flop = self.evaluations.get((kind_of(spec), setting(evaluation)))
        if per_flop is not None:
            return {"all": per_flop * passes(spec, evaluation)[1]}
        speed = self._speed(spec)
        if self.rates is None:
            return {"sampling": (speed or FLOPS).evaluate_seconds(spec, evaluation)}
        images = self.rates.image_seconds(spec, evaluation)
        if speed is None:
            return {"sampling": self.rates.pass_seconds(spec, evaluation), **images}
        timed = _in_precision(speed, evaluation, self.rates)
        return {"sampling": timed.evaluate_seconds(spec, evaluation), **images}

    def references(self, spec: RunSpec, evaluation: EvaluationSpec) -> dict[str, float]:
        """Return the seconds of decoding and describing its references, once for a lab."""
        return {} if self.rates is None else self.rates.reference_seconds(spec, evaluation)

    def _all_references(self, todo: Sequence[Task]) -> float:
        """Return the seconds of the references of all tasks: each set of images counts once."""
        wanted = {(t.spec.data, e): t.spec for t in todo for e in t.evaluations}
        once: dict[object, float] = {}
        for (data, evaluation), spec in wanted.items():
            if isinstance(evaluation, SamplesSpec):
                seconds = sum(self.references(spec, evaluation).values())
                images = (data, evaluation.reference)
                once[images] = max(seconds, once.get(images, 0.0))
        return sum(once.values())

    def seconds(self, task: Task) -> float | None:
        """Return the seconds left of a task in its slot; `None` if nothing was timed here."""
        return None if self._speed(task.spec) is None else self._left(task)

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
        seconds = makespan([self._left(task) for task in todo], self.slots) + self.start
        seconds += self._all_references(todo)
        trained = sum(done_share(self.lab, task) == 1.0 for task in todo)
        return RemainingTime(seconds, len(todo), self._source(todo), trained)

    def _source(self, todo: Sequence[Task]) -> str:
        """Return what the times of these tasks rest on; with their counts where that differs."""
        rates = "" if self.rates is None else f"from stated rates of {self.rates.device}"
        timed = next(iter(self.sources.values()), "")
        kinds = [(kind_of(task.spec), self._speed(task.spec) is None) for task in todo]
        by = Counter(rates if stated else self.sources.get(kind, timed) for kind, stated in kinds)
        if len(by) == 1:
            return next(iter(by))
        return ", ".join(f"{counted(count, 'run')} {source}" for source, count in by.items())

    def device_seconds(self, todo: Sequence[Task]) -> tuple[float, float] | None:
        """Return the seconds of devices that training and evaluations of open tasks take.

        Each run has a device to itself; `None` where neither times nor rates are known.
        """
        if not self.speeds and self.rates is None:
            return None
        train = sum((1 - done_share(self.lab, t)) * self.training(t.spec) for t in todo)
        measuring = sum(self.measuring(task, still=True) for task in todo)
        return train, measuring + self._all_references(todo)

    def _speed(self, spec: RunSpec) -> Speed | None:
        """Return the speed of a run's kind, `None` where stated rates or FLOPs stand for it."""
        kind = kind_of(spec)
        if kind in self.untimed:
            return None
        return self.speeds.get(kind) or next(iter(self.speeds.values()), None)


def _in_precision(speed: Speed, evaluation: EvaluationSpec, rates: Rates) -> Speed:
    """Return the speed of passes, timed in fp32, in the precision that a GPU samples in."""
    if rates.device == "cpu" or not isinstance(evaluation, SamplesSpec):
        return speed
    ratio = rates.sampling[PROBE] / rates.sampling[evaluation.sampler.precision]
    return replace(speed, per_call_flop=speed.per_call_flop * ratio)


def forecast(
    lab: Lab, todo: Sequence[Task], devices: Devices, *, start: float, rates: str | None = None
) -> Forecast:
    """Predict from earlier runs of each kind, else from a few steps, else from stated rates.

    Args:
        start: seconds until the first run starts.
        rates: a device that is not here, whose stated rates are taken instead.

    Raises:
        UserError: no rates are stated for it, or a run that is cheap to time lacks something.
    """
    if rates is not None:
        return Forecast(lab, {}, devices.slots, start, lookup(RATES, rates, "--device-rates"))
    stated = rates_of(devices.type, devices.kinds[0].name)
    found = timings(lab, todo, devices, stated)
    kinds = frozenset(kind_of(task.spec) for task in todo) - found.speeds.keys()
    timed = (found.sources, found.evaluations, frozenset() if stated is None else kinds)
    return Forecast(lab, found.speeds, devices.slots, start, stated, *timed)


class TrainSeconds:
    """Seconds of all training steps of a run, by speeds that are taken once for each kind of run.

    Args:
        rates: a device that is not here, whose stated rates are taken instead.
        stored: speeds that the sweep was planned by before, as `stored` gives them: they stay, so
            that its runs keep their steps.
    """

    def __init__(
        self,
        lab: Lab,
        devices: Devices,
        rates: str | None = None,
        stored: Mapping[str, Sequence[float]] | None = None,
    ) -> None:
        self._lab, self._devices, self._rates = lab, devices, rates
        self.stored = {kind: list(parts) for kind, parts in (stored or {}).items()}

    def __call__(self, spec: RunSpec) -> float:
        if (kind := _name_of_kind(spec)) not in self.stored:
            self.stored[kind] = self._speed(spec)
        return train_seconds(self.stored, spec)

    def _speed(self, spec: RunSpec) -> list[float]:
        """Return the seconds of a step that do not depend on its FLOPs, and those of a FLOP."""
        times = forecast(self._lab, [Task(spec)], self._devices, start=0.0, rates=self._rates)
        if times.speeds:
            speed = next(iter(times.speeds.values()))
            return [speed.overhead, speed.per_flop]
        if times.rates is None:
            raise UserError(
                "match: train_seconds: no time is predicted here; add --device-rates H200, or say"
                " `match: train_flops`"
            )
        return [0.0, times.rates.train_seconds(spec) / cost(spec).train_flops]


def train_seconds(speeds: Mapping[str, Sequence[float]], spec: RunSpec) -> float:
    """Return the seconds of all training steps of a run by the speeds of `TrainSeconds.stored`."""
    overhead, per_flop = speeds[_name_of_kind(spec)]
    return spec.train.steps * overhead + cost(spec).train_flops * per_flop


def _name_of_kind(spec: RunSpec) -> str:
    return f"{zlib.crc32(repr(kind_of(spec)).encode()):08x}"


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
