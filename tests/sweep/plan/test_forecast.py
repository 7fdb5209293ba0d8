"""A forecast lets each run start, in order, in the slot that is free first."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from tests.engine.cost.test_training import imagenet
from tread_lab.engine.cost.rates import RATES, Rates
from tread_lab.engine.cost.sampling import passes
from tread_lab.engine.cost.speed import Speed, kind_of
from tread_lab.engine.cost.training import cost
from tread_lab.records.lab import Lab
from tread_lab.records.status import RunState
from tread_lab.specs import RunSpec, UserError, decode
from tread_lab.specs.evaluation import HeldoutSpec, SamplesSpec
from tread_lab.sweep.plan import devices as module
from tread_lab.sweep.plan.devices import DeviceFacts, Devices
from tread_lab.sweep.plan.earlier_runs import setting
from tread_lab.sweep.plan.forecast import (
    Forecast,
    RemainingTime,
    forecast,
    makespan,
    starts,
)
from tread_lab.sweep.trial.task import Task

Tiny = Callable[..., RunSpec]


def test_a_run_starts_in_the_slot_that_is_free_first() -> None:
    assert starts([5.0, 1.0, 1.0, 4.0], 2) == [0.0, 0.0, 1.0, 2.0]
    assert starts([2.0, 3.0], 1) == [0.0, 2.0]


def test_the_last_run_to_end_need_not_be_the_last_to_start() -> None:
    assert makespan([9.0, 1.0, 1.0], 2) == 9.0
    assert makespan([2.0, 3.0], 0) == 5.0
    assert makespan([], 2) == 0.0


def test_the_longest_run_is_first_with_its_evaluations(lab: Lab, tiny: Tiny) -> None:
    short, long = Task(tiny(steps=10)), Task(tiny(steps=12))
    measured = Task(tiny(steps=10, seed=1), (decode(HeldoutSpec, {"images": 512}),))
    ordered = Forecast(lab).longest_first([short, long, measured])
    assert ordered == [measured, long, short]


def test_of_a_begun_run_only_what_is_left_takes_time(
    lab: Lab, tiny: Callable[..., RunSpec]
) -> None:
    begun, fresh = Task(tiny(steps=20)), Task(tiny(steps=20, seed=1))
    speed = Speed(overhead=1.0, per_flop=0, call=0, per_call_flop=0)
    timed = Forecast(lab, {kind_of(begun.spec): speed}, start=3.0)
    with lab.run(begun.run).log() as log:
        log(15, **{"train/loss": 1.0})
    assert timed.total([begun]).seconds == 3 + 5 + 0.5
    assert timed.total([begun, fresh]).seconds == 3 + 5 + 20 + 2 * 0.5


def test_references_are_described_once_for_all_runs_of_a_data_set(
    lab: Lab, tiny: Callable[..., RunSpec]
) -> None:
    fid = decode(SamplesSpec, {"metrics": ["fid"], "count": 100})
    tasks = [Task(tiny(seed=seed), (fid,)) for seed in (0, 1, 2)]
    stated = Forecast(lab, rates=RATES["cpu"])
    references = sum(stated.references(tasks[0].spec, fid).values())
    assert references > 0
    each = sum(stated.work(task) + 0.5 for task in tasks)
    assert stated.total(tasks).seconds == pytest.approx(each + references)


def test_each_file_of_references_and_the_held_out_images_are_described_once(
    lab: Lab, tiny: Tiny, tmp_path: Path
) -> None:
    """Inception takes 11.4e9 FLOPs an image; a CPU is stated to do 5.2e10 a second."""
    paths = {images: str(tmp_path / f"r{images}.npz") for images in (100, 300)}
    for images, path in paths.items():
        np.savez(path, arr_0=np.zeros((images, 8, 8, 3), np.uint8))
    evaluations = [
        decode(SamplesSpec, {"metrics": [metric], "count": 100, "reference": path})
        for path in (paths[100], paths[300], None)
        for metric in ("fid", "recall")
    ]
    tasks = [Task(tiny(seed=seed), tuple(evaluations)) for seed in (0, 1)]
    stated = Forecast(lab, rates=RATES["cpu"])
    _, measuring = stated.device_seconds(tasks) or (0, 0)
    each = sum(stated.measuring(task) for task in tasks)
    assert measuring - each == pytest.approx((100 + 300 + 10_000) * 11.4e9 / 5.2e10)


def test_runs_of_another_precision_or_batch_are_another_kind(tiny: Callable[..., RunSpec]) -> None:
    assert kind_of(tiny()) != kind_of(tiny(precision="bf16"))
    assert kind_of(tiny()) != kind_of(tiny(train={"batch": 16}))
    assert kind_of(tiny()) != kind_of(tiny(model={"depth": 3, "width": 16, "heads": 2}))
    assert kind_of(tiny()) == kind_of(tiny(seed=1)) == kind_of(tiny(routes=["0->2"]))


def evaluated(tiny: Tiny, **more: Any) -> Task:
    return Task(tiny(**more), (HeldoutSpec(images=8), HeldoutSpec(images=8, levels=2)))


def test_of_evaluations_only_those_not_done_take_time(lab: Lab, tiny: Tiny) -> None:
    task = evaluated(tiny, steps=20)
    speed = Speed(overhead=1.0, per_flop=0, call=10.0, per_call_flop=0)
    timed = Forecast(lab, {kind_of(task.spec): speed})
    calls = [timed.parts(task.spec, spec)["sampling"] for spec in task.evaluations]
    assert calls == [speed.evaluate_seconds(task.spec, spec) for spec in task.evaluations]
    assert timed.work(task) == 20 + sum(calls)
    folder = lab.run(task.run)
    folder.create(task.spec)
    folder.finish(RunState.COMPLETED, step=20)
    folder.evaluation(task.evaluations[0]).write(task.evaluations[0], {"heldout/loss": 1.0})
    assert timed.measuring(task) == sum(calls)
    assert timed.measuring(task, still=True) == calls[1]
    assert timed.seconds(task) == calls[1] + 0.5
    assert timed.device_seconds([task]) == (0.0, calls[1])  # without stated rates, too
    assert Forecast(lab).seconds(task) is None


def test_without_speeds_rates_count_and_with_speeds_only_their_images(lab: Lab, tiny: Tiny) -> None:
    fid = decode(SamplesSpec, {"metrics": ["fid"], "count": 100})
    spec, rates = tiny(steps=20), RATES["cpu"]
    speed = Speed(overhead=1.0, per_flop=0, call=1.0, per_call_flop=0)
    stated = Forecast(lab, rates=rates)
    both = Forecast(lab, {kind_of(spec): speed}, rates=rates)
    flops = Forecast(lab)
    assert stated.training(spec) == rates.train_seconds(spec)
    assert (both.training(spec), flops.training(spec)) == (20.0, cost(spec).train_flops)
    images = rates.image_seconds(spec, fid)["features"]
    assert stated.parts(spec, fid) == {
        "sampling": rates.pass_seconds(spec, fid), "features": images
    }  # fmt: skip
    sampled = speed.evaluate_seconds(spec, fid)
    assert both.parts(spec, fid) == {"sampling": sampled, "features": images}
    assert list(flops.parts(spec, fid)) == ["sampling"]
    once = rates.reference_seconds(spec, fid)["features"]
    assert stated.references(spec, fid) == both.references(spec, fid) == {"features": once}
    assert flops.references(spec, fid) == {} and once > 0


def test_what_is_left_on_so_many_devices_and_where_it_comes_from(lab: Lab, tiny: Tiny) -> None:
    tasks = [Task(tiny(steps=20, seed=seed)) for seed in (0, 1, 2)]
    speed = Speed(overhead=1.0, per_flop=0, call=0, per_call_flop=0)
    timed = Forecast(lab, {kind_of(tasks[0].spec): speed}, 2, 3.0, RATES["cpu"])
    assert timed.total(tasks) == RemainingTime(3 + 2 * 20.5, 3)
    assert timed.device_seconds(tasks) == (60.0, 0.0)
    assert timed.total([]) == RemainingTime(0.0, 0)
    assert Forecast(lab).total(tasks) == RemainingTime(None, 3)
    assert Forecast(lab).device_seconds(tasks) is None
    assert Forecast(lab, rates=RATES["H100"]).total(tasks).source == "from stated rates of H100"


def test_devices_train_what_is_left_and_describe_references_once(lab: Lab, tiny: Tiny) -> None:
    fid = decode(SamplesSpec, {"metrics": ["fid"], "count": 100})
    tasks = [Task(tiny(seed=seed), (fid,)) for seed in (0, 1)]
    stated = Forecast(lab, rates=RATES["cpu"])
    with lab.run(tasks[0].run).log() as log:
        log(15, **{"train/loss": 1.0})
    train, measuring = stated.device_seconds(tasks) or (0, 0)
    assert train == pytest.approx(1.25 * stated.training(tasks[0].spec))
    once = sum(stated.references(tasks[0].spec, fid).values())
    assert measuring == pytest.approx(2 * stated.measuring(tasks[0]) + once)


def test_a_kind_that_was_not_timed_is_like_the_first(lab: Lab, tiny: Tiny) -> None:
    first, second = (Speed(s, 0, 0, 0) for s in (1.0, 2.0))
    timed = Forecast(lab, {kind_of(tiny()): first, kind_of(tiny(train={"batch": 16})): second})
    assert timed.training(tiny(train={"batch": 16})) == 40.0
    assert timed.training(tiny(train={"batch": 32})) == 20.0


CPU_FACTS = DeviceFacts("cpu", "x", ("fp32",), 2**30)


@pytest.fixture
def calibrated(monkeypatch: pytest.MonkeyPatch) -> list[tuple[list[int], int]]:
    """Which batches were timed, on how many slots at once."""
    calls: list[tuple[list[int], int]] = []

    def calibrate(specs: list[RunSpec], device: object, *, slots: int, threads: int) -> list[Speed]:
        calls.append(([spec.train.batch for spec in specs], slots))
        return [Speed(float(spec.train.batch), 0, 0, 0) for spec in specs]

    monkeypatch.setattr(module, "calibrate", calibrate)
    return calls


def test_the_first_run_of_six_kinds_at_most_is_timed(
    lab: Lab, tiny: Tiny, calibrated: list[Any]
) -> None:
    batches = (8, 8, 9, 10, 11, 12, 13, 14)
    tasks = [Task(tiny(steps=2, train={"batch": b}, seed=k)) for k, b in enumerate(batches)]
    here = Devices((CPU_FACTS,), slots=4, local=torch.device("cpu"))
    timed = forecast(lab, tasks, here, start=7.0)
    assert calibrated == [([8, 9, 10, 11, 12, 13], 1)]
    assert (timed.slots, timed.start, timed.rates) == (4, 7.0, RATES["cpu"])
    assert timed.training(tasks[2].spec) == 18.0
    forecast(lab, tasks[:2], here, start=0.0)
    assert calibrated[1] == ([8], 1)


def test_nothing_is_timed_for_other_machines_or_dear_runs_or_stated_rates(
    lab: Lab, tiny: Tiny, calibrated: list[Any]
) -> None:
    here, away = Devices((CPU_FACTS,), local=torch.device("cpu")), Devices((CPU_FACTS,), slots=3)
    dear = Task(imagenet("XL"))
    assert forecast(lab, [dear], here, start=0.0).speeds == {}
    assert forecast(lab, [Task(tiny())], away, start=0.0).speeds == {}
    stated = forecast(lab, [Task(tiny())], Devices((CPU_FACTS,), 3), start=2.0, rates="A100")
    assert (stated.speeds, stated.slots, stated.start) == ({}, 3, 2.0)
    assert stated.rates is RATES["A100"] and calibrated == []
    with pytest.raises(UserError, match="--device-rates: unknown 'H10', did you mean 'H100'"):
        forecast(lab, [], away, start=0.0, rates="H10")


def test_a_gpu_samples_in_a_precision_of_its_own_and_a_cpu_does_not(lab: Lab, tiny: Tiny) -> None:
    spec, speed = tiny(), Speed(overhead=0, per_flop=0, call=0, per_call_flop=3.0)
    for device in ("H100", "cpu"):
        rates = RATES[device]
        timed = Forecast(lab, {kind_of(spec): speed}, rates=rates)
        for precision in ("fp32", "bf16"):
            sampler = {"precision": precision}
            samples = decode(SamplesSpec, {"metrics": [], "count": 100, "sampler": sampler})
            ratio = rates.sampling["fp32"] / rates.sampling[precision] if device != "cpu" else 1.0
            seconds = timed.parts(spec, samples)["sampling"]
            assert seconds == pytest.approx(3 * passes(spec, samples)[1] * ratio)
        losses = HeldoutSpec(images=8)
        assert timed.parts(spec, losses) == {"sampling": 3 * passes(spec, losses)[1]}
    assert RATES["H100"].sampling["bf16"] > 2 * RATES["H100"].sampling["fp32"]


def test_the_rates_of_sampling_and_not_of_training_turn_passes(lab: Lab, tiny: Tiny) -> None:
    spec, speed = tiny(), Speed(overhead=0, per_flop=0, call=0, per_call_flop=1.0)
    rates = Rates(
        device="x", training={"fp32": 1.0, "bf16": 7.0}, sampling={"fp32": 1.0, "bf16": 4.0},
        decoding=1e30, features=1e30, source="stated",
    )  # fmt: skip
    samples = decode(SamplesSpec, {"metrics": [], "count": 8, "sampler": {"precision": "bf16"}})
    timed = Forecast(lab, {kind_of(spec): speed}, rates=rates)
    assert timed.parts(spec, samples)["sampling"] == pytest.approx(passes(spec, samples)[1] / 4)


def test_an_evaluation_on_record_takes_its_seconds_a_flop(lab: Lab, tiny: Tiny) -> None:
    spec, known, other = tiny(), HeldoutSpec(images=8), HeldoutSpec(images=16)
    wide = tiny(train={"batch": 16})
    recorded = {(kind_of(spec), setting(known)): 2.0}
    timed = Forecast(lab, rates=RATES["cpu"], evaluations=recorded)
    assert timed.parts(spec, known) == {"all": 2 * passes(spec, known)[1]}
    assert list(timed.parts(spec, other)) == list(timed.parts(wide, known)) == ["sampling"]


def test_a_kind_that_is_not_timed_beside_others_has_stated_rates(lab: Lab, tiny: Tiny) -> None:
    timed, stated = tiny(steps=20), tiny(steps=20, train={"batch": 16})
    speed, rates = Speed(1.0, 0, 0, 0), RATES["cpu"]
    found = Forecast(
        lab,
        {kind_of(timed): speed},
        rates=rates,
        sources={kind_of(timed): "from 6 steps on CPU"},
        untimed=frozenset({kind_of(stated)}),
    )
    assert (found.training(timed), found.training(stated)) == (20, rates.train_seconds(stated))
    assert (found.seconds(Task(timed)), found.seconds(Task(stated))) == (20.5, None)
    assert found.total([Task(timed), Task(stated)]).source == (
        "1 run from 6 steps on CPU, 1 run from stated rates of cpu"
    )
    assert found.total([Task(timed)]).source == "from 6 steps on CPU"


def test_an_evaluation_takes_the_time_of_all_its_parts(lab: Lab, tiny: Tiny) -> None:
    fid, rates = decode(SamplesSpec, {"metrics": ["fid"], "count": 100}), RATES["cpu"]
    spec = tiny()
    features = rates.image_seconds(spec, fid)["features"]
    sampled = rates.pass_seconds(spec, fid)
    assert features > 0 and sampled > 0
    assert Forecast(lab, rates=rates).measuring(Task(spec, (fid,))) == sampled + features


def test_references_of_each_data_set_count_and_losses_have_none(lab: Lab, tiny: Tiny) -> None:
    """Inception takes 11.4e9 FLOPs an image; 10,000 of them here take a ninth of a second."""
    fid = decode(SamplesSpec, {"metrics": ["fid"], "count": 100})
    large = tiny(data={"size": 32}, model={"depth": 2, "width": 16, "heads": 2})
    tasks = [Task(tiny(), (fid, HeldoutSpec(images=8))), Task(large, (fid,))]
    stated = Forecast(lab, rates=replace(RATES["cpu"], features=1e15))
    assert stated._all_references(tasks) == pytest.approx(0.228)
    assert stated._all_references(tasks[:1]) == pytest.approx(0.114)
