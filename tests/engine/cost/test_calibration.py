"""Calibration in several processes: one that is killed costs accuracy, not the command."""

from __future__ import annotations

import io
import os
import signal
import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from tests.engine.runs import CPU, imagenet
from tread_lab.engine.cost import calibration
from tread_lab.engine.cost.calibration import calibrate, trial_batch
from tread_lab.engine.cost.speed import Speed, step_flops
from tread_lab.engine.cost.training import cost
from tread_lab.engine.trainer import Trainer
from tread_lab.records.run_folder import RunFolder
from tread_lab.specs import RunSpec


def test_a_killed_process_of_the_calibration_is_survived_but_on_a_gpu(
    tiny: Callable[..., RunSpec], monkeypatch: pytest.MonkeyPatch
) -> None:
    speed = Speed(1.0, 2.0, 3.0, 4.0)

    class Killed(subprocess.Popen[str]):
        def __init__(self, *arguments: Any, **options: Any) -> None:
            super().__init__(*arguments, **options)
            os.kill(self.pid, signal.SIGKILL)
            self.wait()

    monkeypatch.setattr(calibration, "usable_cpus", lambda: 2.0)
    monkeypatch.setattr(calibration.subprocess, "Popen", Killed)
    monkeypatch.setattr(calibration, "measure", lambda spec, device: speed)
    assert calibrate([tiny()] * 100, CPU, slots=2) == [speed] * 100
    with pytest.raises(RuntimeError, match="cuda:7 cannot be timed"):
        calibrate([tiny()], torch.device("cuda", 7))


def test_a_trial_step_has_as_many_images_as_are_cheap(tiny: Callable[..., RunSpec]) -> None:
    dense = cost(tiny(steps=10)).train_flops / 10 / 8  # of one image
    assert trial_batch(tiny()) == trial_batch(tiny(routes=["0->3"])) == 8
    most = int(2e10 / dense)
    sparse = tiny(routes=[{"start": 0, "end": 3, "rate": 0.9}], train={"batch": 2 * most})
    assert trial_batch(sparse) == most
    assert trial_batch(sparse, rate=8e10) == 2 * most  # half a second
    assert trial_batch(sparse, rate=1e10) == most  # a slow device, for two seconds
    large = imagenet("XL")
    assert trial_batch(large) == 0
    assert trial_batch(large, rate=0.25 * 989e12) == 173  # 6 x 118.6 GMAC an image


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """Slots on four CPUs that answer `ready`, then numbers for each of two runs.

    Returns:
        the threads and the device of each, how its threads wait, what it is sent, its end.
    """
    slots: list[list[str]] = []

    class Slot:
        def __init__(self, command: list[str], **options: Any) -> None:
            self.number = len(slots)
            self.noted = [*command[-2:], options["env"]["OMP_WAIT_POLICY"]]
            slots.append(self.noted)
            self.stdin = SimpleNamespace(write=lambda line: self.noted.append(line[:2]), flush=bool)
            self.stdout = SimpleNamespace(readline=self.answer)
            self.kill = lambda: self.noted.append("kill")
            self.communicate = lambda: self.noted.append("end")

        def answer(self) -> str:
            n = self.number
            return "1\n" if len(self.noted) == 4 else f"[[{n}, 1, 2, 3, 8], [10, {n}, {n}, 8, 8]]\n"

    monkeypatch.setattr(calibration, "usable_cpus", lambda: 4.0)
    monkeypatch.setattr(calibration.torch, "set_num_threads", lambda threads: None)
    monkeypatch.setattr(calibration.subprocess, "Popen", Slot)
    monkeypatch.setattr(calibration, "measure", None)  # nothing is timed in this process
    return slots


@pytest.mark.parametrize(
    ("device", "slots", "threads", "processes", "expected"),
    [
        ("cpu", 4, 1, 4, [Speed(1.5, 1, 2, 3, load=8), Speed(10, 1.5, 1.5, 8, load=8)]),
        ("cpu", 4, 2, 4, [Speed(3, 2, 4, 6, load=4), Speed(20, 3, 3, 16, load=4)]),  # in turns
        ("cpu", 1, 2, 1, [Speed(0, 1, 2, 3, load=8), Speed(10, 0, 0, 8, load=8)]),
        # What a driver had cached on a GPU stayed beside its runs: 91 GB for XL/2.
        ("cuda:1", 4, 1, 1, [Speed(0, 1, 2, 3, load=8), Speed(10, 0, 0, 8, load=8)]),
    ],
)
def test_processes_time_together_and_end_and_their_mean_is_taken(
    tiny: Callable[..., RunSpec],
    started: list[list[str]],
    device: str,
    slots: int,
    threads: int,
    processes: int,
    expected: list[Speed],
) -> None:
    specs = [tiny(), tiny(seed=1)]
    assert calibrate(specs, torch.device(device), slots=slots, threads=threads) == expected
    noted = [str(threads), device, "PASSIVE", "[{", "go", "kill", "end"]
    assert started == [noted] * processes


def test_a_slot_answers_what_it_has_timed(
    tiny: Callable[..., RunSpec],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Each process is `slot`, which says how many runs it was given before it times them."""

    class Answering:
        def __init__(self, command: list[str], **options: Any) -> None:
            self.words, self.kill, self.communicate = command[-2:], bool, bool
            self.stdin, self.stdout, self.asked = io.StringIO(), self, 0

        def readline(self) -> str:
            self.asked += 1
            if self.asked == 1:
                return "2\n"
            monkeypatch.setattr("sys.stdin", io.StringIO(self.stdin.getvalue()))
            monkeypatch.setattr("sys.argv", ["slot", *self.words])
            calibration.slot()
            first, answer = capsys.readouterr().out.splitlines()
            assert first == "2"
            return str(answer)

    def measured(spec: RunSpec, device: torch.device) -> Speed:
        assert device == torch.device("cuda", 1)
        return Speed(1.0, 2.0, 3.0, 4.0, load=5.0, images_a_call=6.0 + spec.seed)

    monkeypatch.setattr(calibration.torch, "set_num_threads", lambda threads: None)
    monkeypatch.setattr(calibration.subprocess, "Popen", Answering)
    monkeypatch.setattr(calibration, "measure", measured)
    expected = [measured(tiny(seed=seed), torch.device("cuda", 1)) for seed in (0, 1)]
    assert calibrate([tiny(), tiny(seed=1)], torch.device("cuda", 1)) == expected


def test_the_time_of_a_flop_is_what_routing_saves(
    tiny: Callable[..., RunSpec], monkeypatch: pytest.MonkeyPatch
) -> None:
    """By made-up seconds of a dense step, one with half of the tokens routed past all blocks, and
    passes of 16 and of 128 images."""
    seconds: dict[str, float] = {}

    @contextmanager
    def run(spec: RunSpec, folder: Any, device: Any) -> Iterator[str]:
        yield str(spec.routes[0]) if spec.routes else "dense"

    def measured(spec: RunSpec, dense: float, routed: float, small: float, large: float) -> Speed:
        seconds.update({"dense": dense, "0->3": routed, "16": small, "128": large})
        return calibration.measure(spec, CPU)

    monkeypatch.setattr(calibration, "Trainer", run)
    monkeypatch.setattr(calibration, "_step", lambda run: run.partition(" ")[0])
    monkeypatch.setattr(calibration, "_pass", lambda run, count, device: str(count))
    monkeypatch.setattr(calibration, "_median", lambda action, *_: (seconds[action], 1.0))
    spec, half = tiny(), tiny(routes=[{"start": 0, "end": 3, "rate": 0.5, "selection": "rows"}])
    per_flop = 0.5 / step_flops(spec)  # half of the step's second is arithmetic
    saved = per_flop * (step_flops(spec) - step_flops(half))
    speed = measured(tiny(routes=["0->2"]), 1.0, 1.0 - saved, 26.0, 138.0)
    assert (speed.per_flop, speed.overhead) == pytest.approx((per_flop, 0.5))
    image = 2 * cost(spec).dense.network
    assert (speed.call, speed.per_call_flop) == pytest.approx((10.0, 1 / image))  # a second each
    noisy = measured(spec, 1.0, 1.0, 140.0, 140.0)  # a fifth of a pass at least is its images'
    assert (noisy.call, noisy.per_call_flop) == pytest.approx((136.0, 0.25 / image))


def test_a_step_is_timed_beside_the_threads_that_draw_its_batches(
    tiny: Callable[..., RunSpec], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As training has them where the run asks for some, and on a GPU."""
    with Trainer(tiny(execution={"workers": 1}), RunFolder(tmp_path), CPU) as run:
        threads, at = set(), run.batches.at
        drawn = lambda step: (threads.add(threading.get_ident()), at(step))[1]  # noqa: E731
        monkeypatch.setattr(run.batches, "at", drawn)
        assert calibration._median(calibration._step(run), calibration.STEPS, CPU) > (0, 0)
        assert run.step == 8 and len(threads) == 1 and threading.get_ident() not in threads


@pytest.mark.parametrize(
    ("device", "share", "own"),
    [("cpu", 0.1, 3), ("cuda", 0.1, 30), ("cpu", 0.0, 30)],  # a coarse clock sees no time pass
)
def test_a_time_is_the_median_after_two_to_warm_up(
    device: str, share: float, own: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a CPU it is this thread's own, a tenth of the time; of a GPU the wall clock's."""
    calls: list[int] = []

    def elapsed() -> int:
        return sum([1000, 900, 50, 10, 30, 20][: len(calls)])

    monkeypatch.setattr(calibration.time, "thread_time", lambda: share * elapsed())
    monkeypatch.setattr(calibration.time, "perf_counter", elapsed)
    monkeypatch.setattr(torch.cuda, "synchronize", lambda device: None)
    times = calibration._median(lambda: calls.append(1), 4, torch.device(device))
    assert times == pytest.approx((own, 30)) and len(calls) == 6
