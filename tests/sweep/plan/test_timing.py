"""Speeds of runs to come: from earlier runs of real devices, else from steps, and what is said."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.engine.runs import imagenet
from tests.sweep.plans import tiny
from tread_lab.engine.cost.sampling import pass_flops
from tread_lab.engine.cost.speed import Rates, Speed, kind_of, step_flops
from tread_lab.engine.cost.training import cost
from tread_lab.records.lab import Lab
from tread_lab.records.metric_names import STEP_SECONDS
from tread_lab.records.status import RunState
from tread_lab.specs import HeldoutSpec, RunSpec, UserError, decode, encode
from tread_lab.sweep.plan import timing
from tread_lab.sweep.plan.devices import DeviceFacts, Devices
from tread_lab.sweep.plan.forecast import TRIAL_SECONDS, forecast
from tread_lab.sweep.plan.timing import earlier_runs, timings
from tread_lab.sweep.trial.task import Task

HERE = Devices((DeviceFacts("cpu", "x", ("fp32",), 2**30),), slots=4, local=torch.device("cpu"))
RECORD = json.loads((Path(__file__).parent / "recorded_cpu.json").read_text())
CPU = Devices((DeviceFacts("cpu", "x86_64 x1 threads", ("fp32",), 2**34, RECORD["device"]),))
BF16 = ("fp32", "tf32", "bf16", "fp16")
H100 = Devices((DeviceFacts("cuda", "NVIDIA H100 80GB HBM3", BF16, 80, "NVIDIA H100 80GB HBM3"),))


def record(
    lab: Lab,
    spec: RunSpec,
    seconds: float,
    *,
    origin: dict[str, Any] | None = None,
    attempt: dict[str, Any] | None = None,
    compiled: str = "eager",
    model: str = RECORD["device"],
) -> Task:
    """Write what a completed run leaves behind: its device, its attempt and its step time."""
    task = Task(spec, (HeldoutSpec(),))
    folder = lab.run(task.run)
    folder.create(spec)
    folder.write_origin(
        {"device": model, "model": model, "threads": 1} if origin is None else origin
    )
    folder.attempts.open(**{"fingerprint": {"blocks of dit": compiled}, **(attempt or {})})
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


def test_an_evaluation_takes_what_it_took_before(lab: Lab) -> None:
    """Settings compare whatever their order, and at any step."""
    spec, asked = ours(32, None), HeldoutSpec(images=64)
    record(lab, spec, 0.1)
    folder = lab.run_of(spec).evaluation(asked)
    folder.write(asked, {"heldout/loss": 1.0}, seconds=7.0)
    task = Task(replace(spec, seed=1), (HeldoutSpec(images=64, step=50), HeldoutSpec(images=32)))

    def parts() -> list[dict[str, float]]:
        found = forecast(lab, [task], CPU, start=0.0)
        return [found.parts(task.spec, evaluation) for evaluation in task.evaluations]

    known, another = parts()
    assert known == {"all": pytest.approx(7.0)} and list(another) == ["sampling"]
    path = folder.path / "metrics.json"
    tree = json.loads(path.read_text())
    reversed_spec = dict(reversed(tree["spec"].items()))
    path.write_text(json.dumps({**tree, "spec": reversed_spec}))
    assert list(parts()[0]) == ["all"]
    for seed, seconds in ((2, 1.0), (3, 4.0)):  # of several the median
        other = replace(spec, seed=seed)
        record(lab, other, 0.1)
        lab.run_of(other).evaluation(asked).write(asked, {"heldout/loss": 1.0}, seconds=seconds)
    assert parts()[0] == {"all": pytest.approx(4.0)}


def times(lab: Lab, spec: RunSpec, devices: Devices = CPU) -> list[float]:
    """The step times of earlier runs of this kind that count."""
    found = earlier_runs(lab, [Task(spec)], devices)
    return [seconds for runs in found.values() for _, _, seconds in runs]


OWN = RECORD["device"]
SHORT = {"steps": 10, "batch": RECORD["batch"]}


@pytest.mark.parametrize(
    ("spec", "left", "counts"),
    [
        ({}, {}, True),
        ({"model": {"depth": 12, "width": 96, "heads": 2, "patch": 2}}, {}, False),
        ({"train": SHORT}, {}, False),  # no step after the warm-up
        ({"routes_until": 0.5}, {}, False),  # steps of two kinds
        ({}, {"origin": {"device": OWN, "model": OWN, "threads": 2}}, False),
        ({}, {"origin": {"device": "", "model": "", "threads": 1}}, False),
        ({}, {"origin": {"device": OWN, "threads": 1}}, True),  # it names no model yet
        ({}, {"origin": {"device": OWN, "model": "another one", "threads": 1}}, False),
        ({}, {"origin": {"device": "a name", "model": OWN, "threads": 1}}, True),
        ({}, {"attempt": {"runs_per_device": 2}}, False),
        ({}, {"attempt": {"devices": 2}}, False),
        ({}, {"attempt": {"fingerprint": {}}}, True),  # older than compilers
        ({}, {"compiled": "inductor 2.0"}, False),
    ],
)
def test_a_run_counts_that_was_of_this_kind_and_made_as_runs_are_now(
    spec: dict[str, Any], left: dict[str, Any], counts: bool, lab: Lab
) -> None:
    """By its last attempt, on its last device."""
    routed = ours(32, (2, 8, 0.5))
    made = decode(RunSpec, {**encode(routed), "seed": 1, **spec})
    other = lab.run(record(lab, replace(routed, seed=2), 9.0, model="another processor").run)
    other.attempts.open(runs_per_device=2)
    record(lab, made, 0.5, **left)
    assert times(lab, routed) == [0.5] * counts
    assert times(lab, routed, replace(CPU, kinds=(replace(CPU.kinds[0], model=""),))) == []
    other.write_origin({"device": OWN, "model": OWN, "threads": 1})
    other.attempts.open()
    assert sorted(times(lab, routed)) == [*[0.5] * counts, 9.0]


@pytest.mark.parametrize(("attempts", "counts"), [(1, True), (5, True), (6, False)])
def test_of_ten_entries_those_in_which_an_attempt_compiles_are_a_minority(
    attempts: int, counts: bool, lab: Lab
) -> None:
    spec = ours(32, None)
    folder = lab.run(record(lab, spec, 0.5).run)
    for _ in range(attempts - 1):
        folder.attempts.open(fingerprint={"blocks of dit": "eager"})
    assert times(lab, spec) == [0.5] * counts


@pytest.mark.parametrize("lack", ["", "metrics", "time", "spec", "origin", "attempt", "completion"])
def test_a_run_that_lacks_a_record_is_passed_over(lab: Lab, lack: str) -> None:
    spec = ours(32, None)
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
    assert times(lab, spec) == [9.0] * (not lack)


def test_a_gpu_size_run_is_predicted_from_earlier_ones_on_its_gpu(lab: Lab) -> None:
    """Losses are in fp32, though its steps were in bf16; threads count on a CPU alone."""
    spec = replace(imagenet("B"), precision="bf16")
    compiled = f"inductor {torch.__version__}"
    record(lab, spec, 0.1, origin={"model": H100.kinds[0].model, "threads": 4}, compiled=compiled)
    routed = Task(replace(imagenet("B", "2->8", seed=5), precision="bf16"))
    found = forecast(lab, [routed], H100, start=0.0)
    share = step_flops(routed.spec, 3) / step_flops(spec)  # its fp32 block counts three times
    assert found.training(routed.spec) == pytest.approx(0.1 * share * spec.train.steps)
    assert found.total([routed]).source == "from 1 earlier run on H100"
    four = replace(H100, slots=4, runs_per_device=4)
    attempt = {"fingerprint": {"blocks of dit": compiled}, "runs_per_device": 4}
    record(lab, replace(spec, seed=1), 0.4, model=H100.kinds[0].model, attempt=attempt)
    assert forecast(lab, [routed], four, start=0.0).total([routed]) == found.total([routed])
    ratio, losses = 989 / 67, HeldoutSpec()
    seconds = 0.1 / step_flops(spec) * ratio * pass_flops(spec, losses)
    assert found.parts(spec, losses) == {"sampling": pytest.approx(seconds)}


def test_of_a_kind_the_newest_eight_count_among_the_newest_hundred_of_the_lab(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    spec = ours(32, None)
    for number in range(10):
        task = record(lab, replace(spec, seed=number), 0.5 + number)
        os.utime(lab.run(task.run).path / "result.json", (number, number))
    assert times(lab, spec) == [9.5, 8.5, 7.5, 6.5, 5.5, 4.5, 3.5, 2.5]
    for number in range(97):
        result = lab.root / "runs" / f"{number:03}" / "result.json"
        result.parent.mkdir(parents=True)
        result.write_text('{"state": "completed"}')
    assert times(lab, spec) == [9.5, 8.5, 7.5]
    listed = [*lab.root.glob("runs/*/result.json"), lab.root / "runs" / "reopened" / "result.json"]
    monkeypatch.setattr(Path, "glob", lambda *_: listed)
    assert times(lab, spec) == [9.5, 8.5, 7.5], "one that another process has opened since"


@pytest.fixture
def timed(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """How many runs were timed, how many at once."""
    calls: list[Any] = []

    def time(self: Devices, specs: Sequence[RunSpec], *, at_once: int) -> list[Speed]:
        calls.append((len(specs), at_once, list(specs)))
        return [Speed(1.0 + n, 8.0) for n in range(len(specs))]

    monkeypatch.setattr(Devices, "time", time)
    return calls


def test_a_short_sweep_is_timed_in_one_process_and_a_long_one_on_all_slots(
    lab: Lab, timed: list[Any]
) -> None:
    half = round(0.49e12 / (cost(tiny()).train_flops / tiny().train.steps))
    for steps in (half, half + half // 10):  # two of them: .98 and 1.08 TFLOP
        tasks = [Task(tiny(steps=steps, seed=seed)) for seed in (0, 1)]
        timings(lab, tasks, HERE, None, 1.0)
    assert [call[:2] for call in timed] == [(1, 1), (1, 2)]
    timings(lab, [Task(tiny(steps=half, seed=seed)) for seed in range(9)], HERE, None, 1.0)
    assert timed[-1][:2] == (1, 4)  # no more than slots


@pytest.mark.parametrize("local", [torch.device("cpu"), None])  # or a node elsewhere
@pytest.mark.parametrize(("images", "said"), [(8, ""), (7, " of 7 images"), (1, " of 1 image")])
def test_kinds_beyond_six_have_the_speed_and_the_source_of_the_first(
    lab: Lab, timed: list[Any], monkeypatch: pytest.MonkeyPatch, local: Any, images: int, said: str
) -> None:
    """A step of fewer images is said."""
    monkeypatch.setattr(timing, "trial_batch", lambda *_: images)
    specs = [tiny(model={"depth": depth, "width": 16, "heads": 2}) for depth in range(2, 10)]
    devices = replace(HERE, local=local, per_run=2)  # which share what takes time by FLOPs
    found = timings(lab, [Task(spec) for spec in specs], devices, None, 2.0)
    assert {found[kind_of(spec)].speed.per_flop for spec in specs} == {4.0}
    one_step = [replace(spec, train=replace(spec.train, batch=images)) for spec in specs[:6]]
    assert timed[0][2] == one_step
    assert [found[kind_of(spec)].speed.overhead for spec in specs] == [1, 2, 3, 4, 5, 6, 1, 1]
    where = "this CPU" if local else "CPU"
    assert {found[kind_of(spec)].source for spec in specs} == {f"from 6 steps{said} on {where}"}


def test_a_step_is_as_large_as_the_rate_of_a_gpu_allows(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[Any] = []
    monkeypatch.setattr(timing, "trial_batch", lambda spec, rate: asked.append(rate) or 0)  # type: ignore[func-returns-value]
    rates = Rates(
        device="x", training={"bf16": 30.0}, sampling={"fp32": 5.0, "bf16": 10.0},
        images={}, source="stated",
    )  # fmt: skip
    for device in ("cuda", "cpu"):
        devices = Devices((DeviceFacts(device, "x", ("bf16",), 2**30),))
        for stated in (rates, None):
            timings(lab, [Task(tiny(precision="bf16"))], devices, stated, 1.0)
    assert asked == [30.0, None, None, None]


@pytest.mark.parametrize("error", [UserError("no data"), RuntimeError("out of memory")])
@pytest.mark.parametrize(("batches", "raised"), [((8, 9), True), ((8, 4), False)])
def test_what_fails_in_steps_of_fewer_images_is_left_to_stated_rates(
    lab: Lab,
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
            timings(lab, tasks, HERE, None, 1.0)
    else:
        assert timings(lab, tasks, HERE, None, 1.0) == {}


def test_a_kind_that_cannot_be_timed_has_stated_rates_beside_others(
    lab: Lab, timed: list[Any]
) -> None:
    record(lab, ours(32, None), 0.1)
    small, known = Task(tiny()), Task(ours(32, [2, 8, 0.5]))
    wide = Task(replace(imagenet("XL"), precision="fp32"))
    found = forecast(lab, [small, known, wide], CPU, start=0.0)
    assert found.total([small, known, wide]).source == (
        "1 run from 6 steps on CPU, 1 run from 1 earlier run on CPU,"
        " 1 run assumed at a share of the peak of cpu"
    )
    assert found.total([small]).source == "from 6 steps on CPU"
    assert found.training(wide.spec) == pytest.approx(cost(wide.spec).train_flops / 7.9e10)
