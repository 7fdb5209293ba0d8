"""A forecast takes times of the lab's own runs, else an assumed share of a peak, else none."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.sweep.plans import tiny
from tests.train.runs import imagenet
from tread_lab.config import HeldoutSpec, RunSpec, UserError
from tread_lab.cost.training import cost, pass_flops
from tread_lab.hardware import DeviceFacts, Devices
from tread_lab.records.lab import Lab
from tread_lab.records.metric_names import STEP_SECONDS
from tread_lab.records.run_folder import RunFolder
from tread_lab.records.run_state import RunState
from tread_lab.sweep.forecast import (
    ASSUMED,
    RemainingTime,
    Speed,
    TrainSeconds,
    forecast,
)
from tread_lab.sweep.task import Task

CPU = Devices((DeviceFacts("cpu", "x86_64", ("fp32",)),))
H200 = Devices((DeviceFacts("cuda", "NVIDIA H200", ("fp32", "bf16")),))
DENSE = tiny()
MEASURED = HeldoutSpec(images=8, levels=2)


def timed_run(lab: Lab, spec: RunSpec, seconds: float, model: str) -> RunFolder:
    """What a completed run leaves behind: its device, its attempt and its step time."""
    folder = lab.run_of(spec)
    folder.create(spec)
    folder.open_attempt(origin={"device": model, "model": model, "threads": 1})
    folder.finish(RunState.COMPLETED, step=spec.train.steps, metrics={STEP_SECONDS: seconds})
    return folder


def test_earlier_runs_price_a_flop(lab: Lab) -> None:
    timed_run(lab, DENSE, 0.5, "x86_64")
    per_flop = 10.0 / cost(DENSE).train_flops
    routed = Task(tiny(routes=["0->2"]), (MEASURED,))
    found = forecast(lab, [routed], CPU)
    flops = cost(routed.spec).train_flops + pass_flops(routed.spec, MEASURED)
    assert found.seconds == pytest.approx(per_flop * flops)
    assert found.source == "from 1 earlier run"


def test_finished_work_takes_no_time(lab: Lab) -> None:
    timed_run(lab, DENSE, 0.5, "x86_64")
    assert forecast(lab, [], CPU) == RemainingTime(0.0, 0)
    new = [Task(replace(DENSE, seed=seed)) for seed in (1, 2, 3)]
    two = forecast(lab, new, replace(CPU, slots=2))
    assert (two.seconds, two.device_seconds) == pytest.approx((20.0, 30.0))
    folder = lab.run(new[0].run)
    folder.create(new[0].spec)
    folder.checkpoints.mkdir()
    (folder.checkpoints / f"step-{15:08}-{0:016}.safetensors").touch()
    with folder.log() as log:
        log(15, **{"train/loss": 1.0})
    assert forecast(lab, new[:1], CPU).seconds == pytest.approx(2.5)
    done = forecast(lab, [Task(DENSE, (MEASURED,))], CPU)
    assert done.trained == 1 and 0 < (done.seconds or 0) < 10


def test_gpu_without_records_has_assumed_speed(lab: Lab) -> None:
    task = Task(imagenet("B", "2->8", precision="bf16"))
    found, flops = forecast(lab, [task], H200), cost(task.spec).train_flops
    assert found.source == "assumed at 30% of the peak of NVIDIA H200"
    assert found.seconds == pytest.approx(flops / (ASSUMED * 989e12))
    shared = forecast(lab, [task], replace(H200, slots=4, runs_per_device=4))
    assert shared.seconds == pytest.approx(4 * (found.seconds or 0))
    assert shared.device_seconds == pytest.approx(found.device_seconds)
    several = forecast(lab, [task], replace(H200, per_run=4))
    assert several.device_seconds == pytest.approx(found.seconds)
    other = replace(H200, kinds=(replace(H200.kinds[0], model="unheard of"),))
    exact = Task(replace(task.spec, precision="fp32"))
    for tasks, devices in (([task], CPU), ([task], other), ([task, exact], H200)):
        assert forecast(lab, tasks, devices) == RemainingTime(None, len(tasks))


def test_matched_seconds_need_two_timed_runs(lab: Lab) -> None:
    """One FLOP count cannot tell the fixed part of a step."""
    routed = tiny(routes=["0->2"])
    for count, (spec, seconds) in enumerate([(DENSE, 0.3), (routed, 0.25)]):
        with pytest.raises(UserError, match=f"dense and routed, got {count}.*match=train_flops"):
            TrainSeconds(lab, CPU, {})(routed)
        timed_run(lab, spec, seconds, "x86_64")
    known = TrainSeconds(lab, CPU, {})
    assert (known(DENSE), known(routed)) == pytest.approx((6.0, 5.0))
    (kind,) = known.stored
    assert TrainSeconds(lab, H200, {kind: [2.0, 0.0]})(DENSE) == 40.0
    assert Speed(2.0, 0.0).train_seconds(DENSE) == 40.0
