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
from tread_lab.specs import RunSpec
from tread_lab.sweep.plan import timing
from tread_lab.sweep.plan.devices import DeviceFacts, Devices
from tread_lab.sweep.plan.earlier_runs import EarlierRuns
from tread_lab.sweep.plan.timing import timings
from tread_lab.sweep.trial.task import Task

Tiny = Callable[..., RunSpec]
CPU = Devices((DeviceFacts("cpu", "x", ("fp32",), 2**30),), slots=4, local=torch.device("cpu"))


@pytest.fixture
def timed(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, int]]:
    """How many runs were timed, and how many at once; their load grows by one from 1.99."""
    calls: list[tuple[int, int]] = []

    def time(self: Devices, specs: Sequence[RunSpec], *, at_once: int) -> list[Speed]:
        calls.append((len(specs), at_once))
        return [Speed(1.0, 0.0, 0.0, 0.0, load=1.99 + number) for number in range(len(specs))]

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
