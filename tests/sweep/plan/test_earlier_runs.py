"""Earlier runs on record predict others of their kind; errors are of step times of real devices."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.engine.cost.test_training import imagenet
from tread_lab.engine.cost.rates import RATES
from tread_lab.engine.cost.speed import Speed, step_flops
from tread_lab.engine.cost.training import cost
from tread_lab.records.lab import Lab
from tread_lab.records.metric_names import STEP_SECONDS
from tread_lab.records.status import RunState
from tread_lab.specs import HeldoutSpec, RunSpec, decode
from tread_lab.sweep.plan import earlier_runs as module
from tread_lab.sweep.plan.devices import DeviceFacts, Devices
from tread_lab.sweep.plan.earlier_runs import earlier_runs
from tread_lab.sweep.plan.forecast import TRIAL_SECONDS, forecast
from tread_lab.sweep.trial.task import Task

RECORD = json.loads((Path(__file__).parent / "recorded_cpu.json").read_text())
CPU = Devices((DeviceFacts("cpu", "x86_64 x1 threads", ("fp32",), 2**34, RECORD["device"]),))
BF16 = ("fp32", "tf32", "bf16", "fp16")
H100 = Devices((DeviceFacts("cuda", "NVIDIA H100 80GB HBM3", BF16, 80, "NVIDIA H100 80GB HBM3"),))


def record(
    lab: Lab, spec: RunSpec, seconds: float, *, model: str = RECORD["device"], **differs: Any
) -> Task:
    """Write what a completed run leaves behind: its device, its attempt and its step time."""
    task = Task(spec, (HeldoutSpec(),))
    folder = lab.run(task.run)
    folder.create(spec)
    origin = {"device": model, "model": model, "threads": 1}
    folder.write_origin(origin | {k: v for k, v in differs.items() if k in origin})
    made_with = {"blocks of dit": differs.get("compiler", "eager")}
    folder.attempts.open(made_with=made_with, packed=differs.get("packed", 1))
    folder.finish(RunState.COMPLETED, step=spec.train.steps, metrics={STEP_SECONDS: seconds})
    return task


def ours(width: int, route: Sequence[Any] | None) -> RunSpec:
    """A run of the recorded kind; two batches of log entries, so that its median is warm."""
    routes = [] if route is None else [dict(zip(("start", "end", "rate"), route))]
    model = {"depth": 12, "width": width, "heads": 2, "patch": 2}
    train = {"steps": 100, "batch": RECORD["batch"]}
    tree = {"model": model, "train": train, "routes": routes, "precision": "fp32"}
    return decode(RunSpec, {**tree, "execution": {"log_every": 10}})


@pytest.mark.parametrize("width", [32, 96, 192])
def test_two_runs_of_a_real_cpu_predict_the_others_within_an_eighth(lab: Lab, width: int) -> None:
    rows = [row for row in RECORD["runs"] if row["width"] == width]
    seconds = {tuple(row["route"] or ()): row["step_seconds"] for row in rows}
    runs = [ours(width, route or None) for route in seconds]
    first = [record(lab, spec, seconds[key]) for spec, key in zip(runs, seconds) if key in FIRST]
    assert len(first) == 2
    others = {key: Task(spec) for spec, key in zip(runs, seconds) if key not in FIRST}
    times = forecast(lab, list(others.values()), CPU, start=0.0)
    for key, task in others.items():
        assert times.training(task.spec) == pytest.approx(100 * seconds[key], rel=0.125)
    remaining = times.total(list(others.values()))
    assert remaining.source == "from 2 earlier runs on CPU"
    measured = sum(100 * seconds[key] + TRIAL_SECONDS for key in others)
    assert remaining.seconds == pytest.approx(measured, rel=0.08)


FIRST = ((), (2, 8, 0.5))


def roofline(spec: RunSpec) -> float:
    """Seconds of a step on an H100 of a roofline: products at .6 of 989 TFLOP/s, attention at .35,
    elementwise work and optimizer at .85 of 3.35 TB/s; written from counted FLOPs and bytes."""
    N, D, L, B = 256, spec.model.width, spec.model.depth, spec.train.batch
    kept = [N] * L
    for route in spec.routes:
        for block in range(int(route.start), int(route.end) + 1):
            kept[block] = N - round(route.rate * N)
    products = sum(6 * B * n * 12 * D * D for n in kept) / (0.6 * 989e12)
    attention = sum(6 * B * 2 * n * n * D for n in kept) / (0.35 * 989e12)
    elementwise = sum(B * n * D * 2 * 60 for n in kept)  # bf16, 60 times read or written a block
    parameters = L * 18 * D * D * 4 * 12  # weights, gradients, moments, EMA
    return products + attention + (elementwise + parameters) / (0.85 * 3.35e12)


@pytest.mark.parametrize(("size", "worst"), [("S", 0.04), ("B", 0.03), ("XL", 0.02)])
def test_dense_and_the_paper_s_route_predict_placements_of_a_roofline(
    size: str, worst: float
) -> None:
    dense, paper = imagenet(size), imagenet(size, "2->8")
    speed = Speed.of_steps([(step_flops(spec), roofline(spec)) for spec in (dense, paper)])
    for route, rate in (("0->3", 0.5), ("2->8", 0.75), ("1->10", 0.5), ("4->6", 0.25)):
        spec = imagenet(size, route, rate=rate)
        predicted = speed.overhead + speed.per_flop * step_flops(spec)
        assert predicted == pytest.approx(roofline(spec), rel=worst)


def test_a_gpu_size_run_is_predicted_from_earlier_ones_on_its_gpu(lab: Lab) -> None:
    spec = replace(imagenet("B"), precision="bf16")
    record(lab, spec, 0.1, model=H100.kinds[0].model, compiler=inductor())
    routed = Task(replace(imagenet("B", "2->8", seed=5), precision="bf16"))
    found = forecast(lab, [routed], H100, start=0.0)
    share = step_flops(routed.spec) / step_flops(spec)
    assert found.training(routed.spec) == pytest.approx(0.1 * share * spec.train.steps)
    assert found.total([routed]).source == "from 1 earlier run on H100"
    assert found.seconds(routed) is not None  # it binds a budget
    (speed,) = found.speeds.values()  # of passes: in fp32, steps were in bf16
    ratio = RATES["H100"].training["bf16"] / RATES["H100"].sampling["fp32"]
    assert speed.per_call_flop == pytest.approx(0.1 / step_flops(spec) * ratio)


def inductor() -> str:
    import torch

    return f"inductor {torch.__version__}"


@pytest.mark.parametrize(
    "differs",
    [
        {"model": "another processor"},
        {"threads": 2},
        {"packed": 2},
        {"compiler": "inductor 2.0"},
    ],
)
def test_a_run_that_ran_otherwise_predicts_nothing(lab: Lab, differs: dict[str, Any]) -> None:
    spec = ours(32, None)
    record(lab, spec, 0.1, **differs)
    assert earlier_runs(lab, [Task(spec)], CPU) == {}


def test_runs_of_another_kind_or_without_a_warm_step_predict_nothing(lab: Lab) -> None:
    spec = ours(32, None)
    record(lab, ours(96, None), 0.1)
    short = replace(spec, train=replace(spec.train, steps=10))
    record(lab, short, 0.1)
    folder = lab.run(Task(replace(spec, seed=1)).run)
    folder.finish(RunState.FAILED, step=3)  # and has no spec
    assert earlier_runs(lab, [Task(spec)], CPU) == {}
    record(lab, replace(spec, seed=2), 0.1)
    assert len(earlier_runs(lab, [Task(spec)], CPU)) == 1


def test_an_evaluation_takes_what_it_took_before(lab: Lab) -> None:
    spec, asked = ours(32, None), HeldoutSpec(images=64)
    record(lab, spec, 0.1)
    lab.run_of(spec).evaluation(asked).write(asked, {"heldout/loss": 1.0}, seconds=7.0)
    task = Task(replace(spec, seed=1), (HeldoutSpec(images=64, step=50), HeldoutSpec(images=32)))
    found = forecast(lab, [task], CPU, start=0.0)
    first, second = (sum(found.parts(task.spec, e).values()) for e in task.evaluations)
    assert first == pytest.approx(7.0)
    assert second != pytest.approx(3.5, rel=0.01)  # another one, by the speed of the steps


def test_sources_are_counted_where_they_differ(
    lab: Lab, tiny: Callable[..., RunSpec], monkeypatch: pytest.MonkeyPatch
) -> None:
    speed = Speed(0.1, 0.0, 0.0, 0.0)
    monkeypatch.setattr(Devices, "time", lambda self, specs, *, at_once: [speed] * len(specs))
    record(lab, ours(32, None), 0.1)
    small, known = Task(tiny()), Task(ours(32, [2, 8, 0.5]))
    wide = Task(replace(imagenet("XL"), precision="fp32"))
    found = forecast(lab, [small, known, wide], replace(CPU), start=0.0)
    assert found.total([small, known, wide]).source == (
        "1 run from 6 steps on CPU, 1 run from 1 earlier run on CPU, 1 run from stated rates of cpu"
    )
    assert found.seconds(wide) is None and found.seconds(small) is not None


def test_of_a_kind_the_newest_eight_count_among_the_newest_of_the_lab(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    spec = ours(32, None)
    for number in range(10):
        task = record(lab, replace(spec, seed=number), 0.5 + number)
        os.utime(lab.run(task.run).path / "result.json", (number, number))

    def seconds() -> list[float]:
        (runs,) = earlier_runs(lab, [Task(spec)], CPU).values()
        return [seconds for _, seconds in runs.steps]

    assert seconds() == [9.5, 8.5, 7.5, 6.5, 5.5, 4.5, 3.5, 2.5]
    monkeypatch.setattr("tread_lab.sweep.plan.earlier_runs._NEWEST", 3)
    assert seconds() == [9.5, 8.5, 7.5]


def test_the_last_device_and_the_last_attempt_of_a_run_count(lab: Lab) -> None:
    spec = ours(32, None)
    folder = lab.run(record(lab, spec, 0.1, model="another processor").run)
    assert earlier_runs(lab, [Task(spec)], CPU) == {}
    folder.write_origin({"device": RECORD["device"], "threads": 1})  # it names no model yet
    assert len(earlier_runs(lab, [Task(spec)], CPU)) == 1
    folder.attempts.open(packed=2)
    assert earlier_runs(lab, [Task(spec)], CPU) == {}


def test_a_run_whose_steps_are_not_all_alike_predicts_nothing(lab: Lab) -> None:
    spec = replace(ours(32, (2, 8, 0.5)), routes_until=0.5)
    record(lab, spec, 0.1)
    assert earlier_runs(lab, [Task(spec)], CPU) == {}


def test_the_newest_hundred_runs_of_a_lab_are_looked_at(lab: Lab) -> None:
    for number in range(102):
        result = lab.root / "runs" / f"{number:03}" / "result.json"
        result.parent.mkdir(parents=True)
        result.write_text('{"state": "completed"}')
        os.utime(result, (1000 - number, 1000 - number))
    assert [folder.name for folder in module._newest(lab)] == [f"{n:03}" for n in range(100)]


@pytest.mark.parametrize("lack", ["metrics", "time", "spec", "origin", "attempt", "completion"])
def test_a_run_that_lacks_a_record_is_passed_over_for_older_ones(lab: Lab, lack: str) -> None:
    spec = ours(32, None)
    older = lab.run(record(lab, replace(spec, seed=1), 0.5).run)
    os.utime(older.path / "result.json", (1, 1))
    folder = lab.run(record(lab, spec, 9.0).run)
    facts: dict[str, Any] = {"metrics": {STEP_SECONDS: 9.0}}
    if lack in ("metrics", "time"):
        facts = {} if lack == "metrics" else {"metrics": {"cost/train_flops": 1.0}}
    files = {"spec": "spec.yaml", "origin": "origin.json", "attempt": "attempts.jsonl"}
    if lack in files:
        (folder.path / files[lack]).unlink()
    folder.reopen()
    state = RunState.STOPPED if lack == "completion" else RunState.COMPLETED
    folder.finish(state, step=100, **facts)
    (runs,) = earlier_runs(lab, [Task(spec)], CPU).values()
    assert [seconds for _, seconds in runs.steps] == [0.5]


def test_a_device_without_a_model_is_like_no_other(lab: Lab) -> None:
    spec = ours(32, None)
    record(lab, spec, 0.1, model="")
    unknown = replace(CPU, kinds=(replace(CPU.kinds[0], model=""),))
    assert earlier_runs(lab, [Task(spec)], unknown) == {}


def test_the_model_of_a_device_counts_and_not_its_name(lab: Lab) -> None:
    spec = ours(32, None)
    folder = lab.run(record(lab, spec, 0.1, model="another processor").run)
    folder.write_origin({"device": "a name", "model": RECORD["device"], "threads": 1})
    assert len(earlier_runs(lab, [Task(spec)], CPU)) == 1
    folder.write_origin({"device": RECORD["device"], "model": "another one", "threads": 1})
    assert earlier_runs(lab, [Task(spec)], CPU) == {}


def test_threads_count_on_a_cpu_alone(lab: Lab) -> None:
    spec = replace(imagenet("B"), precision="bf16")
    folder = lab.run(record(lab, spec, 0.1, model=H100.kinds[0].model, compiler=inductor()).run)
    folder.write_origin({"model": H100.kinds[0].model, "threads": 4})
    assert len(earlier_runs(lab, [Task(spec)], H100)) == 1


def test_the_last_attempt_says_how_a_run_was_compiled(lab: Lab) -> None:
    spec = ours(32, None)
    folder = lab.run(record(lab, spec, 0.1).run)
    folder.attempts.open(made_with={"blocks of dit": "inductor 2.0"})
    assert earlier_runs(lab, [Task(spec)], CPU) == {}


def test_one_dense_image_makes_a_run_of_two_kinds_of_steps(lab: Lab) -> None:
    spec = replace(ours(32, (2, 8, 0.5)), routes_until=99)
    spec = replace(spec, train=replace(spec.train, batch=1))
    record(lab, spec, 0.1)
    assert cost(spec).dense_images == 1
    assert earlier_runs(lab, [Task(spec)], CPU) == {}


def test_settings_compare_whatever_their_order_and_what_is_unreadable_is_none(lab: Lab) -> None:
    spec, asked = ours(32, None), HeldoutSpec(images=64)
    record(lab, spec, 0.1)
    path = lab.run_of(spec).evaluation(asked).path / "metrics.json"
    lab.run_of(spec).evaluation(asked).write(asked, {"heldout/loss": 1.0}, seconds=7.0)
    tree = json.loads(path.read_text())
    task = Task(replace(spec, seed=1), (asked,))

    def found() -> int:
        (runs,) = earlier_runs(lab, [task], CPU).values()
        return len(runs.evaluations)

    path.write_text(json.dumps({**tree, "spec": dict(reversed(tree["spec"].items()))}))
    assert found() == 1
    path.write_text(json.dumps({**tree, "spec": None}))
    assert found() == 0
    path.write_text("{")
    assert found() == 0
