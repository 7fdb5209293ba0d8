"""Speeds of runs to come: who times them, how many side by side, and what is said of it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest
import torch

from tread_lab.engine.cost.rates import PROBE, Rates
from tread_lab.engine.cost.speed import Speed, kind_of
from tread_lab.engine.cost.training import cost
from tread_lab.records.lab import Lab
from tread_lab.specs import RunSpec, UserError
from tread_lab.sweep.plan import timing
from tread_lab.sweep.plan.devices import DeviceFacts, Devices
from tread_lab.sweep.plan.earlier_runs import EarlierRuns
from tread_lab.sweep.plan.timing import timings
from tread_lab.sweep.trial.task import Task

Tiny = Callable[..., RunSpec]
CPU = Devices((DeviceFacts("cpu", "x", ("fp32",), 2**30),), slots=4, local=torch.device("cpu"))


@pytest.fixture
def timed(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, int]]:
    """How many runs were timed, and how many at once; the first has a load of 1.99, others of 2."""
    calls: list[tuple[int, int]] = []

    def time(self: Devices, specs: Sequence[RunSpec], *, at_once: int) -> list[Speed]:
        calls.append((len(specs), at_once))
        loads = [1.99, *[2.0] * (len(specs) - 1)]
        return [Speed(1.0 + n, 0.0, 0.0, 0.0, load=load) for n, load in enumerate(loads)]

    monkeypatch.setattr(Devices, "time", time)
    return calls


def steps_of(flops: float, spec: RunSpec) -> int:
    """Return how many steps have so many FLOPs."""
    return round(flops / (cost(spec).train_flops / spec.train.steps))


def test_a_short_sweep_is_timed_in_one_process_and_a_long_one_on_all_slots(
    lab: Lab, tiny: Tiny, timed: list[Any]
) -> None:
    half = steps_of(0.49e12, tiny())
    for steps in (half, half + half // 10):  # two of them: .98 and 1.08 TFLOP
        tasks = [Task(tiny(steps=steps, seed=seed)) for seed in (0, 1)]
        timings(lab, tasks, CPU, None)
    assert timed == [(1, 1), (1, 2)]
    timings(lab, [Task(tiny(steps=half, seed=seed)) for seed in range(9)], CPU, None)
    assert timed[-1] == (1, 4)  # no more than slots


def test_what_others_take_of_the_cpu_is_said_from_twice_the_time_on(
    lab: Lab, tiny: Tiny, timed: list[Any]
) -> None:
    idle, busy = Task(tiny()), Task(tiny(train={"batch": 4}))
    found = timings(lab, [idle, busy], CPU, None).sources
    assert found[kind_of(idle.spec)] == "from 6 steps on this CPU"
    assert found[kind_of(busy.spec)] == "from 6 steps on this busy CPU as if it were idle"


def test_a_node_elsewhere_is_not_this_one(lab: Lab, tiny: Tiny, timed: list[Any]) -> None:
    idle, busy = Task(tiny()), Task(tiny(train={"batch": 4}))
    found = timings(lab, [idle, busy], replace(CPU, local=None), None).sources
    assert found[kind_of(idle.spec)] == "from 6 steps on CPU"
    assert found[kind_of(busy.spec)] == "from 6 steps on a busy CPU as if it were idle"


@pytest.mark.parametrize(("device", "expected"), [("cuda", 6.0), ("cpu", 2.0)])
def test_passes_of_earlier_runs_on_a_gpu_are_turned_into_those_of_fp32(
    lab: Lab, tiny: Tiny, monkeypatch: pytest.MonkeyPatch, device: str, expected: float
) -> None:
    """Their steps ran at the rate of bf16, three times that of the passes that are timed."""
    spec = tiny(precision="bf16")
    runs = EarlierRuns(steps=[(10.0, 20.0)])
    monkeypatch.setattr(timing, "earlier_runs", lambda *_: {kind_of(spec): runs})
    devices = Devices((DeviceFacts(device, "x", ("bf16",), 2**30),))
    own, passes = {"bf16": 30.0}, {PROBE: 10.0}
    rates = Rates(
        device=device, training=own, sampling=passes, decoding=1.0, features=1.0, source="stated"
    )
    (speed,) = timings(lab, [Task(spec)], devices, rates).speeds.values()
    assert (speed.per_flop, speed.per_call_flop) == (2.0, expected)


def test_without_stated_rates_passes_are_as_fast_as_steps(
    lab: Lab, tiny: Tiny, monkeypatch: pytest.MonkeyPatch
) -> None:
    spec = tiny()
    runs = EarlierRuns(steps=[(10.0, 20.0)])
    monkeypatch.setattr(timing, "earlier_runs", lambda *_: {kind_of(spec): runs})
    devices = Devices((DeviceFacts("cuda", "x", ("fp32",), 2**30),))
    (speed,) = timings(lab, [Task(spec)], devices, None).speeds.values()
    assert (speed.per_flop, speed.per_call_flop) == (2.0, 2.0)


def test_a_teraflop_is_still_a_short_sweep(
    lab: Lab, tiny: Tiny, timed: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(timing, "step_flops", lambda spec: 2.5e10)
    tasks = [Task(tiny(steps=20, seed=seed)) for seed in (0, 1)]
    timings(lab, tasks, CPU, None)
    timings(lab, [*tasks, Task(tiny(steps=1))], CPU, None)
    assert timed == [(1, 1), (1, 3)]


def test_kinds_beyond_six_have_the_speed_and_the_source_of_the_first(
    lab: Lab, tiny: Tiny, timed: list[Any]
) -> None:
    specs = [tiny(train={"batch": batch}) for batch in range(8, 16)]
    found = timings(lab, [Task(spec) for spec in specs], CPU, None)
    assert [found.speeds[kind_of(spec)].overhead for spec in specs] == [1, 2, 3, 4, 5, 6, 1, 1]
    assert [found.sources[kind_of(spec)] for spec in specs[5:]] == [
        "from 6 steps on this busy CPU as if it were idle",
        "from 6 steps on this CPU",
        "from 6 steps on this CPU",
    ]


@pytest.mark.parametrize(
    ("images", "said"), [(8, ""), (7, " of 7 images"), (2, " of 2 images"), (1, " of 1 image")]
)
def test_steps_of_fewer_images_are_timed_and_said(
    lab: Lab, tiny: Tiny, monkeypatch: pytest.MonkeyPatch, images: int, said: str
) -> None:
    given: list[RunSpec] = []

    def time(self: Devices, specs: Sequence[RunSpec], *, at_once: int) -> list[Speed]:
        given.extend(specs)
        return [Speed(1.0, 0.0, 0.0, 0.0)]

    monkeypatch.setattr(Devices, "time", time)
    monkeypatch.setattr(timing, "trial_batch", lambda *_: images)
    spec = tiny()
    found = timings(lab, [Task(spec)], CPU, None)
    assert given == [replace(spec, train=replace(spec.train, batch=images))]
    assert found.sources == {kind_of(spec): f"from 6 steps{said} on this CPU"}


def test_a_step_is_as_large_as_the_rate_of_a_gpu_allows(
    lab: Lab, tiny: Tiny, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[Any] = []
    monkeypatch.setattr(timing, "trial_batch", lambda spec, rate: asked.append(rate) or 0)  # type: ignore[func-returns-value]
    rates = Rates(
        device="x", training={"bf16": 30.0}, sampling={"bf16": 10.0}, decoding=1.0, features=1.0,
        source="stated",
    )  # fmt: skip
    for device in ("cuda", "cpu"):
        devices = Devices((DeviceFacts(device, "x", ("bf16",), 2**30),))
        for stated in (rates, None):
            timings(lab, [Task(tiny(precision="bf16"))], devices, stated)
    assert asked == [30.0, None, None, None]


@pytest.mark.parametrize("error", [UserError("no data"), RuntimeError("out of memory")])
@pytest.mark.parametrize(("batches", "raised"), [((8, 9), True), ((8, 4), False), ((4, 4), False)])
def test_what_fails_in_steps_of_fewer_images_is_left_to_stated_rates(
    lab: Lab,
    tiny: Tiny,
    monkeypatch: pytest.MonkeyPatch,
    batches: tuple[int, int],
    raised: bool,
    error: Exception,
) -> None:
    def time(self: Devices, specs: Sequence[RunSpec], *, at_once: int) -> list[Speed]:
        raise error

    monkeypatch.setattr(Devices, "time", time)
    images = dict(zip((8, 9), batches))
    monkeypatch.setattr(timing, "trial_batch", lambda spec, rate: images[spec.train.batch])
    tasks = [Task(tiny(train={"batch": batch})) for batch in (8, 9)]
    if raised:
        with pytest.raises(type(error), match=str(error)):
            timings(lab, tasks, CPU, None)
    else:
        assert timings(lab, tasks, CPU, None).speeds == {}
