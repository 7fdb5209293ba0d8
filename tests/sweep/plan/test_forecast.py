"""A forecast takes times of the lab's own runs, else an assumed share of a peak, else none."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.engine.runs import imagenet
from tests.sweep.plans import tiny
from tests.sweep.timed import timed_run
from tread_lab.engine.cost.sampling import pass_flops
from tread_lab.engine.cost.training import cost
from tread_lab.records.lab import Lab
from tread_lab.records.metric_names import STEP_SECONDS
from tread_lab.records.status import RunState
from tread_lab.specs import HeldoutSpec, RunSpec, UserError, decode, encode
from tread_lab.sweep.plan.devices import DeviceFacts, Devices
from tread_lab.sweep.plan.forecast import (
    ASSUMED,
    RemainingTime,
    Speed,
    TrainSeconds,
    earlier_runs,
    fitted,
    forecast,
    kind_of,
    makespan,
)
from tread_lab.sweep.task import Task

RECORD = json.loads((Path(__file__).parent / "recorded_cpu.json").read_text())
OWN = RECORD["device"]
CPU = Devices((DeviceFacts("cpu", "x86_64 x1 threads", ("fp32",), 2**34, OWN),))
H200 = Devices((DeviceFacts("cuda", "NVIDIA H200", ("fp32", "bf16"), 80, "NVIDIA H200"),))


def ours(width: int, route: Sequence[Any] | None) -> RunSpec:
    """A run of the recorded kind; two batches of log entries, so that its median is warm."""
    routes = [] if route is None else [dict(zip(("start", "end", "rate"), route))]
    model = {"depth": 12, "width": width, "heads": 2, "patch": 2}
    train = {"steps": 100, "batch": RECORD["batch"]}
    tree = {"model": model, "train": train, "routes": routes, "precision": "fp32"}
    return decode(RunSpec, {**tree, "execution": {"log_every": 10}})


def test_each_run_starts_in_the_slot_free_first() -> None:
    assert makespan([5.0, 1.0, 1.0, 4.0], 2) == 6.0
    assert makespan([2.0, 3.0], 0) == 5.0
    assert makespan([], 2) == 0.0


def test_a_line_without_negative_parts_is_fitted() -> None:
    assert fitted([(2.0, 6.0)]) == Speed(0.0, 3.0)
    assert fitted([(1.0, 3.0), (3.0, 7.0)]) == Speed(1.0, 2.0)
    assert fitted([(1.0, 1.0), (2.0, 4.0)]) == Speed(0.0, pytest.approx(5 / 3))
    assert fitted([(1.0, 4.0), (2.0, 2.0)]) == Speed(3.0, 0.0)


FIRST = ((), (2, 8, 0.5))


@pytest.mark.parametrize("width", [32, 96, 192])
def test_two_recorded_runs_predict_the_others(lab: Lab, width: int) -> None:
    """Of a real CPU: each within an eighth."""
    rows = [row for row in RECORD["runs"] if row["width"] == width]
    seconds = {tuple(row["route"] or ()): row["step_seconds"] for row in rows}
    runs = {key: ours(width, key or None) for key in seconds}
    for key in FIRST:
        timed_run(lab, runs[key], seconds[key], OWN)
    others = {key: Task(spec) for key, spec in runs.items() if key not in FIRST}
    for key, task in others.items():
        found = forecast(lab, [task], CPU)
        assert found.seconds == pytest.approx(100 * seconds[key], rel=0.125)
        assert found.source == "from 2 earlier runs"


def test_an_evaluation_takes_what_its_flops_took(lab: Lab) -> None:
    spec, asked = ours(32, None), HeldoutSpec(images=64)
    folder = timed_run(lab, spec, 0.1, OWN)
    task = Task(replace(spec, seed=1), (asked,))
    per_flop = 0.1 / (cost(spec).step.flops * spec.train.batch)
    expected = 10.0 + per_flop * pass_flops(spec, asked)
    assert forecast(lab, [task], CPU).seconds == pytest.approx(expected)
    folder.evaluation(asked).write(asked, {"heldout/loss": 1.0}, seconds=7.0)
    assert forecast(lab, [task], CPU).seconds == pytest.approx(17.0)
    twice = Task(task.spec, (asked, HeldoutSpec(images=128)))
    assert forecast(lab, [twice], CPU).seconds == pytest.approx(10 + 7 + 14)


def test_what_is_done_takes_no_more_time(lab: Lab) -> None:
    spec, asked = ours(32, None), HeldoutSpec(images=64)
    timed_run(lab, spec, 0.1, OWN)
    assert forecast(lab, [], CPU) == RemainingTime(0.0, 0)
    new = [Task(replace(spec, seed=seed)) for seed in (1, 2, 3)]
    two = forecast(lab, new, replace(CPU, slots=2))
    assert two == RemainingTime(
        pytest.approx(20.0), 3, "from 1 earlier run", 0, pytest.approx(30.0)
    )
    folder = lab.run(new[0].run)
    folder.create(new[0].spec)
    folder.checkpoints.mkdir()
    (folder.checkpoints / f"step-{75:08}-{0:016}.safetensors").touch()
    with folder.log() as log:
        log(75, **{"train/loss": 1.0})
    assert forecast(lab, new[:1], CPU).seconds == pytest.approx(2.5)
    done = forecast(lab, [Task(spec, (asked,))], CPU)
    assert done.trained == 1 and 0 < (done.seconds or 0) < 10


def test_without_records_a_gpu_has_assumed_speeds(lab: Lab) -> None:
    task = Task(imagenet("B", "2->8", precision="bf16"))
    found, flops = forecast(lab, [task], H200), cost(task.spec).train_flops
    assert found.source == "assumed at 30% of the peak of NVIDIA H200"
    assert found.seconds == pytest.approx(flops / (ASSUMED * 989e12))
    shared = replace(H200, slots=4, runs_per_device=4)
    assert forecast(lab, [task], shared).seconds == pytest.approx(4 * (found.seconds or 0))
    assert forecast(lab, [task], shared).device_seconds == pytest.approx(found.device_seconds)
    several = forecast(lab, [task], replace(H200, per_run=4))
    assert several.device_seconds == pytest.approx(found.seconds)
    other = replace(H200, kinds=(replace(H200.kinds[0], name="unheard of"),))
    exact = Task(replace(task.spec, precision="fp32"))
    for tasks, devices in (([task], CPU), ([task], other), ([task, exact], H200)):
        assert forecast(lab, tasks, devices) == RemainingTime(None, len(tasks))


def times(lab: Lab, spec: RunSpec, devices: Devices = CPU) -> list[float]:
    """The step times of earlier runs of this kind that count."""
    found = earlier_runs(lab, {kind_of(spec)}, devices)
    return [seconds for runs in found.values() for _, _, seconds in runs]


@pytest.mark.parametrize(
    ("spec", "left", "counts"),
    [
        ({}, {}, True),
        ({"model": {"depth": 12, "width": 96, "heads": 2, "patch": 2}}, {}, False),
        ({"train": {"steps": 10, "batch": RECORD["batch"]}}, {}, False),  # none after the warm-up
        ({"routes_until": 0.5}, {}, False),  # steps of two kinds
        ({}, {"threads": 2}, False),
        ({}, {"model": "another one"}, False),
        ({}, {"runs_per_device": 2}, False),
        ({}, {"devices": 2}, False),
    ],
)
def test_runs_of_this_kind_and_device_count(
    spec: dict[str, Any], left: dict[str, Any], counts: bool, lab: Lab
) -> None:
    """By the last attempt, on its last device."""
    routed = ours(32, (2, 8, 0.5))
    made = decode(RunSpec, {**encode(routed), "seed": 1, **spec})
    timed_run(lab, made, 0.5, **{"model": OWN, **left})
    assert times(lab, routed) == [0.5] * counts
    assert times(lab, routed, replace(CPU, kinds=(replace(CPU.kinds[0], model=""),))) == []


@pytest.mark.parametrize("lack", ["", "metrics", "spec", "origin", "attempt", "completion"])
def test_a_run_that_lacks_a_record_is_passed_over(lab: Lab, lack: str) -> None:
    spec = ours(32, None)
    folder = timed_run(lab, spec, 9.0, OWN)
    files = {"spec": "spec.yaml", "origin": "origin.json", "attempt": "attempts.jsonl"}
    if lack in files:
        (folder.path / files[lack]).unlink()
    folder.reopen()
    state = RunState.STOPPED if lack == "completion" else RunState.COMPLETED
    facts = {} if lack == "metrics" else {"metrics": {STEP_SECONDS: 9.0}}
    folder.finish(state, step=100, **facts)
    assert times(lab, spec) == [9.0] * (not lack)


def test_the_newest_eight_of_a_kind_count(lab: Lab) -> None:
    spec = ours(32, None)
    for number in range(10):
        folder = timed_run(lab, replace(spec, seed=number), 0.5 + number, OWN)
        os.utime(folder.path / "result.json", (number, number))
    assert times(lab, spec) == [9.5, 8.5, 7.5, 6.5, 5.5, 4.5, 3.5, 2.5]


def test_matched_seconds_need_two_timed_runs(lab: Lab) -> None:
    """One FLOP count cannot tell the fixed part of a step."""
    dense, routed = ours(32, None), ours(32, (2, 8, 0.5))
    for count, (spec, seconds) in enumerate([(dense, 0.3), (routed, 0.25)]):
        with pytest.raises(UserError, match=f"dense and routed, got {count}.*match=train_flops"):
            TrainSeconds(lab, CPU)(routed)
        timed_run(lab, spec, seconds, OWN)
    known = TrainSeconds(lab, CPU)
    assert (known(dense), known(routed)) == pytest.approx((30.0, 25.0))
    (kind,) = known.stored
    assert TrainSeconds(lab, H200, {kind: [2.0, 0.0]})(dense) == 200.0
    with pytest.raises(UserError, match="got 0"):
        TrainSeconds(lab, CPU)(tiny())
