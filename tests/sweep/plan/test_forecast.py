"""A forecast lets each run start, in order, in the slot that is free first."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from tests.engine.runs import imagenet
from tests.pretender import ended_run
from tests.sweep.plans import tiny
from tread_lab.engine.cost.sampling import pass_flops
from tread_lab.engine.cost.speed import RATES, Speed, kind_of, step_flops
from tread_lab.engine.cost.training import cost
from tread_lab.records.lab import Lab
from tread_lab.specs import UserError, decode
from tread_lab.specs.evaluation import HeldoutSpec, SamplesSpec
from tread_lab.sweep.plan.devices import DeviceFacts, Devices
from tread_lab.sweep.plan.forecast import (
    TRIAL_SECONDS,
    Forecast,
    RemainingTime,
    TrainSeconds,
    forecast,
    makespan,
    starts,
)
from tread_lab.sweep.plan.timing import Timing, setting
from tread_lab.sweep.trial.task import Task


def test_a_run_starts_in_the_first_free_slot_and_the_last_to_start_need_not_end_last() -> None:
    assert starts([5.0, 1.0, 1.0, 4.0], 2) == [0.0, 0.0, 1.0, 2.0]
    assert makespan([9.0, 1.0, 1.0], 2) == 9.0
    assert makespan([2.0, 3.0], 0) == 5.0
    assert makespan([], 2) == 0.0


def test_the_longest_run_is_first_with_its_evaluations(lab: Lab) -> None:
    short, long = Task(tiny(steps=10)), Task(tiny(steps=12))
    measured = Task(tiny(steps=10, seed=1), (decode(HeldoutSpec, {"images": 512}),))
    ordered = Forecast(lab).longest_first([short, long, measured])
    assert ordered == [measured, long, short]


def evaluated(**more: Any) -> Task:
    return Task(tiny(**more), (HeldoutSpec(images=8), HeldoutSpec(images=8, levels=2)))


def test_of_evaluations_only_those_not_done_take_time(lab: Lab) -> None:
    task = evaluated(steps=20)
    speed = Speed(overhead=1.0, per_flop=0)
    timed = Forecast(lab, {kind_of(task.spec): Timing(speed)})
    passes = [timed.parts(task.spec, spec)["sampling"] for spec in task.evaluations]
    flops = [pass_flops(task.spec, spec) for spec in task.evaluations]
    assert passes == [speed.pass_seconds(task.spec, each) / 1.25 for each in flops]
    assert timed.work(task) == 20 + sum(passes)
    folder = ended_run(lab, task.spec, step=20)
    folder.evaluation(task.evaluations[0]).write(task.evaluations[0], {"heldout/loss": 1.0})
    assert timed.measuring(task) == sum(passes)
    assert timed.measuring(task, still=True) == passes[1]
    assert timed.total([task]).seconds == passes[1] + 0.5
    assert timed.device_seconds([task]) == (0.0, passes[1])  # without stated rates, too


def test_parts_are_by_speed_where_timed_and_images_by_stated_rates(lab: Lab) -> None:
    """A CPU is stated to do 5.2e10 FLOP/s of Inception, and 8.6e10 of passes in fp32."""
    fid = decode(SamplesSpec, {"metrics": ["fid"], "count": 100})
    spec, flops = tiny(steps=20), pass_flops(tiny(), fid)
    timed = {kind_of(spec): Timing(Speed(overhead=1.0, per_flop=0))}
    stated, both = (Forecast(lab, known, rates=RATES["cpu"]) for known in ({}, timed))
    unknown, features = Forecast(lab), pytest.approx(100 * 11.4e9 / 5.2e10)
    assert (both.training(spec), unknown.training(spec)) == (20.0, cost(spec).train_flops)
    assert stated.training(spec) == pytest.approx(cost(spec).train_flops / 7.9e10)
    assert stated.parts(spec, fid) == {
        "sampling": pytest.approx(flops / 8.6e10), "features": features
    }  # fmt: skip
    passes = pytest.approx(flops / step_flops(spec) / 1.25)
    assert both.parts(spec, fid) == {"sampling": passes, "features": features}
    assert unknown.parts(spec, fid) == {"sampling": pytest.approx(flops)}
    assert stated.measuring(Task(spec, (fid,))) == sum(stated.parts(spec, fid).values())
    once = {"features": pytest.approx(10_000 * 11.4e9 / 5.2e10)}
    assert stated.references(spec, fid) == both.references(spec, fid) == once
    assert unknown.references(spec, fid) == stated.references(spec, HeldoutSpec()) == {}


def test_devices_of_a_run_share_steps_sampling_and_decoding_and_are_all_paid(lab: Lab) -> None:
    fid = decode(SamplesSpec, {"metrics": ["fid"], "count": 100})
    latents = {"source": "latents", "path": "x", "channels": 4, "size": 8, "classes": 1}
    spec = tiny(steps=20, data=latents)
    one, four = (Forecast(lab, rates=RATES["H100"], share=n) for n in (1, 4))
    assert four.training(spec) == one.training(spec) / 4
    alone, shared = one.parts(spec, fid), four.parts(spec, fid)
    assert shared["features"] == alone["features"]
    assert shared["decoding"] == alone["decoding"] / 4
    assert shared["sampling"] == pytest.approx(alone["sampling"] / 4)
    losses = HeldoutSpec(images=8)  # which the first one makes alone
    assert four.parts(spec, losses) == one.parts(spec, losses)
    measured = sum(shared.values()) + sum(four.references(spec, fid).values())
    paid = pytest.approx((one.training(spec), 4 * measured))
    assert four.device_seconds([Task(spec, (fid,))]) == paid


def test_runs_that_share_a_gpu_take_as_long_as_one_after_the_other_but_for_the_host(
    lab: Lab,
) -> None:
    kinds = (DeviceFacts("cuda", "NVIDIA H100", ("bf16",), 2**36),)
    devices = Devices(kinds, slots=4, runs_per_device=4)
    tasks = [Task(tiny(seed=seed), (HeldoutSpec(images=8),)) for seed in range(4)]
    one, four = (forecast(lab, tasks, d, start=0.0) for d in (Devices(kinds), devices))
    assert four.device_seconds(tasks) == pytest.approx(one.device_seconds(tasks))
    alone, together = (times.total(tasks).seconds for times in (one, four))
    assert alone is not None and together == pytest.approx(alone - 3 * TRIAL_SECONDS)
    last, speed = tasks[:1], Speed(overhead=3.0, per_flop=1.0)
    for timer in (None, lambda specs: [speed] * len(specs)):  # it has the GPU to itself
        places = [replace(d, timer=timer) for d in (Devices(kinds), devices)]
        one, four = (forecast(lab, last, place, start=0.0) for place in places)
        assert four.total(last) == one.total(last)
    assert forecast(lab, tasks, places[1], start=0.0).timing(tasks[0].spec).speed == Speed(3.0, 4.0)
    assert Devices((replace(kinds[0], type="cpu"),), runs_per_device=4).share() == 1


def test_references_of_each_data_set_and_file_are_described_once_for_all_runs(
    lab: Lab, tmp_path: Path
) -> None:
    paths = {images: str(tmp_path / f"r{images}.npz") for images in (100, 300)}
    for images, path in paths.items():
        np.savez(path, arr_0=np.zeros((images, 8, 8, 3), np.uint8))
    evaluations = [
        decode(SamplesSpec, {"metrics": [metric], "count": 100, "reference": path})
        for path in (paths[100], paths[300], None)
        for metric in ("fid", "recall")
    ]
    tasks = [Task(tiny(seed=seed), (*evaluations, HeldoutSpec())) for seed in (0, 1)]
    large = {"depth": 2, "width": 16, "heads": 2}
    tasks.append(Task(tiny(data={"size": 32}, model=large), tuple(evaluations[-2:])))
    stated = Forecast(lab, rates=RATES["cpu"])
    described = (100 + 300 + 10_000 + 10_000) * 11.4e9 / 5.2e10
    each = sum(stated.measuring(task) for task in tasks)
    _, measuring = stated.device_seconds(tasks) or (0, 0)
    assert measuring - each == pytest.approx(described)
    each += sum(stated.training(task.spec) + 0.5 for task in tasks)
    assert stated.total(tasks).seconds == pytest.approx(each + described)


def test_what_is_left_on_so_many_devices_and_where_it_comes_from(lab: Lab) -> None:
    tasks = [Task(tiny(steps=20, seed=seed)) for seed in (0, 1, 2)]
    speed = Speed(overhead=1.0, per_flop=0)
    known = {kind_of(tasks[0].spec): Timing(speed, "from here")}
    timed = Forecast(lab, known, 2, 3.0, RATES["cpu"])
    assert timed.total(tasks) == RemainingTime(3 + 2 * 20.5, 3, "from here")
    assert timed.device_seconds(tasks) == (60.0, 0.0)
    with (folder := lab.run(tasks[0].run)).log() as log:
        log(16, **{"train/loss": 1.0})
    assert timed.device_seconds(tasks) == (60.0, 0.0)  # as nothing holds its weights
    folder.checkpoints.mkdir()
    (folder.checkpoints / f"step-{15:08}-{0:016}.safetensors").touch()
    assert timed.device_seconds(tasks) == (45.0, 0.0)
    assert timed.total(tasks).seconds == 3 + 5.5 + 20.5  # the last starts after the first
    assert timed.total([]) == RemainingTime(0.0, 0)
    assert Forecast(lab).total(tasks) == RemainingTime(None, 3)
    assert Forecast(lab).device_seconds(tasks) is None
    stated = Forecast(lab, rates=RATES["H200"])
    assert stated.total(tasks).source == "assumed at a share of the peak of H200"
    like = [Task(imagenet("B", "2->8", precision="bf16"))]
    spreads = [stated.total(some).spread for some in (tasks, like, tasks + like)]
    assert spreads == [(0.8, 1.5), (1.0, 1.0), (0.8, 1.5)] and stated.spread([]) == (1.0, 1.0)


def test_a_kind_that_nothing_is_known_of_is_like_the_first_that_was_timed(lab: Lab) -> None:
    """All but its evaluations on record, which take their seconds for a FLOP."""
    spec, other, stated = (tiny(train={"batch": batch}) for batch in (8, 16, 32))
    asked, unasked = HeldoutSpec(images=8), HeldoutSpec(images=16)
    first = Timing(Speed(1.0, 0), "from 6 steps", {setting(asked): 2.0})
    rates = Timing.of_rates(RATES["cpu"], stated, 1)
    timed = Forecast(lab, {kind_of(stated): rates, kind_of(spec): first}, rates=RATES["cpu"])
    assert timed.training(other) == timed.training(spec) == 20.0 != timed.training(stated)
    assert timed.parts(spec, asked) == {"all": 2 * pass_flops(spec, asked)}
    assert list(timed.parts(spec, unasked)) == list(timed.parts(other, asked)) == ["sampling"]
    tasks = [Task(spec), Task(other), Task(stated)]
    said = "2 runs from 6 steps, 1 run assumed at a share of the peak of cpu"
    assert (timed.total(tasks).source, timed.timed, timed.known) == (said, True, True)


def test_nothing_is_timed_for_other_machines_or_dear_runs_or_stated_rates(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tread_lab.sweep.plan.devices.calibrate", None)
    kinds = (DeviceFacts("cpu", "x", ("fp32",), 2**30),)
    here, away = Devices(kinds, local=torch.device("cpu")), Devices(kinds, slots=3, per_run=2)
    dear, cheap = Task(imagenet("XL")), Task(tiny())
    for task, devices in ((dear, here), (cheap, away)):
        found = forecast(lab, [task], devices, start=7.0)
        assert (found.timed, found.rates, found.slots) == (False, RATES["cpu"], devices.slots)
        by_rates = Forecast(lab, rates=RATES["cpu"], share=devices.per_run)
        assert found.share == devices.per_run
        assert found.training(task.spec) == by_rates.training(task.spec)


def test_seconds_to_match_are_by_stored_speeds_else_by_those_of_now(lab: Lab) -> None:
    devices = Devices((DeviceFacts("cuda", "unheard of", ("fp32",), 2**30),))
    stated = TrainSeconds(lab, devices, "cpu")
    seconds = cost(tiny()).train_flops / 7.9e10
    assert stated(tiny()) == pytest.approx(seconds)
    (kind,) = stated.stored
    assert stated.stored == {kind: [0.0, pytest.approx(1 / 7.9e10), 1.0]}
    assert TrainSeconds(lab, devices, "cpu", {kind: [2.0, 0.0]})(tiny(steps=20)) == 40.0
    says = r"^match: train_seconds: no time is predicted here; add .* or say `match: train_flops`$"
    with pytest.raises(UserError, match=says):
        TrainSeconds(lab, devices)(tiny())
