"""Forecast of the remaining time, from earlier runs, a few steps or an assumed share of a peak."""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import astuple, dataclass, field

from tread_lab.engine.cost.sampling import image_work, pass_flops, reference_work
from tread_lab.engine.cost.speed import FLOPS, PASS, Kind, Rates, Speed, kind_of, rates_of
from tread_lab.records.checksums import checksum
from tread_lab.records.lab import Lab
from tread_lab.specs.errors import UserError
from tread_lab.specs.evaluation import EvaluationSpec, SamplesSpec
from tread_lab.specs.run import RunSpec
from tread_lab.specs.units import counted
from tread_lab.sweep.plan.devices import Devices
from tread_lab.sweep.plan.timing import Timing, setting, timings
from tread_lab.sweep.trial.task import Task, done_share, kept_share

TRIAL_SECONDS = 0.5  # starting a trial in a reused worker, writing its record


@dataclass(frozen=True)
class RemainingTime:
    """Predicted wall seconds of the open runs; `None` where neither times nor rates are known."""

    seconds: float | None
    open_runs: int
    source: str = ""  # what the prediction rests on: `from 3 earlier runs on H100`
    trained: int = 0  # of the open runs, those that are only measured
    spread: tuple[float, float] = (1.0, 1.0)  # the least and the greatest factor on `seconds`


@dataclass(frozen=True)
class Forecast:
    """Predicts how long tasks take: in seconds, or in FLOPs where it has no timings and no rates.

    Attributes:
        timings: by kind of run; a kind that has none is taken to be like the first that was timed.
        start: seconds until the first run starts.
        rates: of the device, as stated; used where nothing was measured, and for decoding and
            features of an evaluation that no earlier run had.
        share: devices of each run, a part of one where several runs have it; the exchange between
            devices is not counted.
    """

    lab: Lab
    timings: Mapping[Kind, Timing] = field(default_factory=dict)
    slots: int = 1
    start: float = 0.0
    rates: Rates | None = None
    share: float = 1.0

    @property
    def timed(self) -> bool:
        """Whether anything was timed, else there are rates at most."""
        return any(not timing.stated for timing in self.timings.values())

    @property
    def known(self) -> bool:
        """Whether seconds are predicted, else FLOPs stand for them."""
        return self.timed or self.rates is not None

    def timing(self, spec: RunSpec) -> Timing:
        """Return how fast runs of this kind are; where nothing is known FLOPs stand for seconds."""
        if own := self.timings.get(kind_of(spec)):
            return own
        for first in self.timings.values():
            if not first.stated:
                return Timing(first.speed, first.source)
        if self.rates is not None:
            return Timing.of_rates(self.rates, spec, self.share)
        return Timing(FLOPS, stated=True)

    def training(self, spec: RunSpec) -> float:
        """Return the seconds of all training steps, or their FLOPs."""
        return self.timing(spec).speed.train_seconds(spec)

    def work(self, task: Task) -> float:
        """Return the seconds of a whole run and its evaluations, or their FLOPs."""
        return self.training(task.spec) + self.measuring(task)

    def longest_first(self, tasks: Sequence[Task]) -> list[Task]:
        """Return the tasks by their work, so that no long one is left to the end alone."""
        return sorted(tasks, key=self.work, reverse=True)

    def measuring(self, task: Task, *, still: bool = False, measured: float = 0.0) -> float:
        """Return the seconds of the evaluations, or their FLOPs; `still`: of those not done, less
        the share `measured` of the first of them."""
        folder = self.lab.run(task.run)
        begun = still and folder.path.exists()
        specs = [e for e in task.evaluations if not begun or not folder.evaluation(e).done]
        first, *others = [sum(self.parts(task.spec, spec).values()) for spec in specs] or [0.0]
        return (1 - measured) * first + sum(others)

    def parts(self, spec: RunSpec, evaluation: EvaluationSpec) -> dict[str, float]:
        """Return the seconds of one evaluation by kind of work, or the FLOPs of its passes; what it
        compares with is of `references`."""
        timing, flops = self.timing(spec), pass_flops(spec, evaluation)
        if (per_flop := timing.evaluations.get(setting(evaluation))) is not None:
            return {"all": per_flop * flops}
        if not self.known:
            return {"sampling": flops}
        images, devices = self._seconds(image_work(spec, evaluation)), max(self.share, 1.0)
        if "decoding" in images:
            images["decoding"] /= devices  # the first one alone describes
        # Each draws its part of the samples; the first one alone makes held-out losses.
        drawn_by = devices if isinstance(evaluation, SamplesSpec) else 1
        seconds = timing.speed.pass_seconds(spec, flops / drawn_by, devices)
        stated = self.rates is not None and (timing.stated or self.rates.device != "cpu")
        faster = self.rates.pass_speedup(spec, evaluation) if self.rates and stated else PASS
        return {"sampling": seconds / faster, **images}

    def references(self, spec: RunSpec, evaluation: EvaluationSpec) -> dict[str, float]:
        """Return the seconds of decoding and describing its references, once for a lab."""
        return self._seconds(reference_work(spec, evaluation))

    def _seconds(self, work: Mapping[str, float]) -> dict[str, float]:
        """Return the seconds of work on images on one device, where rates are stated."""
        rates, part = self.rates.images if self.rates else {}, min(self.share, 1.0)
        return {what: flops / rates[what] / part for what, flops in work.items() if rates}

    def _all_references(self, todo: Sequence[Task]) -> float:
        """Return the seconds of the references of all tasks: each set of images counts once."""
        wanted = {(t.spec.data, e): t.spec for t in todo for e in t.evaluations}
        once: dict[object, float] = {}
        for (data, evaluation), spec in wanted.items():
            images = (data, getattr(evaluation, "reference", None))
            seconds = sum(self.references(spec, evaluation).values())
            once[images] = max(seconds, once.get(images, 0.0))
        return sum(once.values())

    def _in_slot(self, task: Task) -> float:
        return sum(self._left(task)) + TRIAL_SECONDS

    def _left(self, task: Task) -> tuple[float, float]:
        """Return the seconds left of a task's training and of its evaluations."""
        training = (1 - kept_share(self.lab, task)) * self.training(task.spec)
        return training, self.measuring(task, still=True)

    def total(self, todo: Sequence[Task]) -> RemainingTime:
        """Return the wall time until the last task has ended."""
        if not todo:
            return RemainingTime(0.0, 0)
        if not self.known:
            return RemainingTime(None, len(todo))
        seconds = makespan([self._in_slot(task) for task in todo], self.slots) + self.start
        seconds += self._all_references(todo)
        trained = sum(done_share(self.lab, task) == 1.0 for task in todo)
        by = Counter(self.timing(task.spec).source for task in todo)
        source = ", ".join(f"{counted(n, 'run')} {source}" for source, n in by.items())
        source = next(iter(by)) if len(by) == 1 else source
        return RemainingTime(seconds, len(todo), source, trained, self.spread(todo))

    def spread(self, todo: Sequence[Task]) -> tuple[float, float]:
        """Return the least and the greatest factor on the predicted time of open tasks."""
        spreads = [self.timing(task.spec).spread for task in todo] or [(1.0, 1.0)]
        return min(low for low, _ in spreads), max(high for _, high in spreads)

    def device_seconds(self, todo: Sequence[Task]) -> tuple[float, float] | None:
        """Return the seconds of devices that training and evaluations of open tasks take; `None`
        where neither times nor rates are known."""
        if not self.known:
            return None
        train, measuring = map(sum, zip(*map(self._left, todo), (0.0, 0.0)))
        return self.share * train, self.share * (measuring + self._all_references(todo))


def forecast(
    lab: Lab,
    todo: Sequence[Task],
    devices: Devices,
    *,
    start: float,
) -> Forecast:
    """Predict from earlier runs of each kind, else from a few steps, else at an assumed share of
    the device's peak.

    Args:
        start: seconds until the first run starts.

    Raises:
        UserError: a run that is cheap to time lacks something.
    """
    share = devices.share(len(todo))
    here = rates_of(devices.type, devices.kinds[0].name)
    return Forecast(
        lab, timings(lab, todo, devices, here, share), devices.slots, start, here, share
    )


class TrainSeconds:
    """Seconds of all training steps of a run, by speeds that are taken once for each kind of run.

    Args:
        stored: speeds that the sweep was planned by before: they stay, so that its runs keep their
            steps.
    """

    def __init__(
        self,
        lab: Lab,
        devices: Devices,
        stored: Mapping[str, Sequence[float]] | None = None,
    ) -> None:
        self._lab, self._devices = lab, devices
        self.stored = {kind: list(parts) for kind, parts in (stored or {}).items()}

    def __call__(self, spec: RunSpec) -> float:
        if (kind := _name_of_kind(spec)) not in self.stored:
            self.stored[kind] = self._speed(spec)
        return train_seconds(self.stored, spec)

    def _speed(self, spec: RunSpec) -> list[float]:
        """Return the fields of a `Speed`."""
        at_once = [Task(spec)] * self._devices.slots  # as the sweep will have them
        times = forecast(self._lab, at_once, self._devices, start=0.0)
        if not times.known:
            raise UserError(
                "match: train_seconds requires a predicted time, got none for this device. Try"
                " match=train_flops."
            )
        return [*astuple(times.timing(spec).speed)]


def train_seconds(speeds: Mapping[str, Sequence[float]], spec: RunSpec) -> float:
    """Return the seconds of all training steps of a run by the speeds of `TrainSeconds.stored`."""
    return Speed(*speeds[_name_of_kind(spec)]).train_seconds(spec)


def _name_of_kind(spec: RunSpec) -> str:
    return checksum(repr(kind_of(spec)))


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
