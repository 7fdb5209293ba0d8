"""Calibration in several processes: one that is killed costs accuracy, not the command."""

from __future__ import annotations

import os
import signal
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.engine.runs import CPU, imagenet
from tests.sweep.plans import tiny
from tread_lab.engine.cost import calibration
from tread_lab.engine.cost.calibration import calibrate, trial_batch
from tread_lab.engine.cost.speed import Speed, step_flops
from tread_lab.engine.cost.training import cost
from tread_lab.engine.trainer import Trainer
from tread_lab.records.run_folder import RunFolder
from tread_lab.specs import RunSpec
from tread_lab.specs.errors import Unavailable
from tread_lab.sweep.plan.devices import DeviceFacts, Devices


def test_a_killed_process_of_the_calibration_is_survived(monkeypatch: pytest.MonkeyPatch) -> None:
    speed = Speed(1.0, 2.0)

    class Killed(subprocess.Popen[str]):
        def __init__(self, *arguments: Any, **options: Any) -> None:
            super().__init__(*arguments, **options)
            os.kill(self.pid, signal.SIGKILL)

    monkeypatch.setattr(calibration.subprocess, "Popen", Killed)
    monkeypatch.setattr(calibration, "measure", lambda spec, device: speed)
    assert calibrate([tiny()] * 2, torch.device("cpu"), slots=2) == [speed] * 2


def test_a_trial_step_has_as_many_images_as_are_cheap() -> None:
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


@pytest.mark.parametrize(("slots", "threads", "processes"), [(2, 1, 2), (1, 2, 1)])
def test_as_many_processes_as_slots_time_and_end_and_one_is_heard(
    slots: int, threads: int, processes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing is timed in this process; each has its threads, which sleep while they wait."""
    started: list[subprocess.Popen[str]] = []

    class Noted(subprocess.Popen[str]):
        def __init__(self, words: list[str], *, env: dict[str, str], **options: Any) -> None:
            assert (words[4], env["OMP_WAIT_POLICY"]) == (str(threads), "PASSIVE")
            super().__init__(words, env=env, **options)
            started.append(self)

    monkeypatch.setattr(calibration.subprocess, "Popen", Noted)
    monkeypatch.delattr(calibration, "measure")
    speeds = calibrate([tiny(), tiny(seed=1)], CPU, slots=slots, threads=threads)
    assert [speed.per_flop > 0 for speed in speeds] == [True, True]
    assert [process.returncode is not None for process in started] == [True] * processes


def test_a_gpu_is_timed_by_a_process_of_its_own_alone(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """What a driver had cached on a GPU stayed beside its runs: 91 GB for XL/2. No machine here has
    an eighth GPU: a warning says that it cannot be timed, and the traceback of its process nothing.
    """
    monkeypatch.delattr(calibration, "measure")
    eighth = torch.device("cuda", 7)
    with pytest.raises(Unavailable, match=r"^cuda:7 cannot be timed$"):
        calibrate([tiny()], eighth, slots=4)
    here = Devices((DeviceFacts("cuda", "H100", ("fp32",), 2**36),), 4, 4, eighth)
    with pytest.warns(UserWarning, match=r"^cuda:7 cannot be timed, so no time is predicted$"):
        assert here.time([tiny()], at_once=4) is None
    assert capfd.readouterr().err == ""
    if torch.cuda.is_available():
        [speed] = calibrate([tiny()], torch.device("cuda", 0), slots=4)
        assert speed.per_flop > 0


def test_the_time_of_a_flop_is_what_routing_saves(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of half of the tokens past all blocks."""
    half = tiny(routes=[{"start": 0, "end": 3, "rate": 0.5, "selection": "rows"}])
    dense, routed = step_flops(tiny()), step_flops(half)
    per_flop = 0.5 / dense  # half of the step's second is arithmetic
    seconds = {"dense": 1.0, "0->3": 1.0 - per_flop * (dense - routed)}

    @contextmanager
    def run(spec: RunSpec, folder: Any, device: Any) -> Iterator[str]:
        assert spec.init_from is None
        yield str(spec.routes[0])[:4] if spec.routes else "dense"

    monkeypatch.setattr(calibration, "Trainer", run)
    monkeypatch.setattr(calibration, "_step", lambda run: run)
    monkeypatch.setattr(calibration, "_median", lambda step, device: seconds[step])
    speed = calibration.measure(tiny(routes=["0->2"]), CPU)
    assert (speed.overhead, speed.per_flop) == (pytest.approx(0.5), pytest.approx(per_flop))
    on_gpu = calibration.measure(tiny(routes=["0->2"]), torch.device("cuda"))
    assert (speed.fp32_block, on_gpu.fp32_block) == (1, 3)


def test_a_step_is_timed_beside_the_threads_that_draw_its_batches(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As training has them where the run asks for some, and on a GPU."""
    with Trainer(tiny(execution={"workers": 1}), RunFolder(tmp_path), CPU) as run:
        threads, at = set(), run.batches.at
        drawn = lambda step: (threads.add(threading.get_ident()), at(step))[1]  # noqa: E731
        monkeypatch.setattr(run.batches, "at", drawn)
        assert calibration._median(calibration._step(run), CPU) > 0
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
        return sum([1000, 900, 50, 10, 30, 20, 40, 25][: len(calls)])

    monkeypatch.setattr(calibration.time, "thread_time", lambda: share * elapsed())
    monkeypatch.setattr(calibration.time, "perf_counter", elapsed)
    monkeypatch.setattr(torch.cuda, "synchronize", lambda device: None)
    seconds = calibration._median(lambda: calls.append(1), torch.device(device))
    assert seconds == pytest.approx(own) and len(calls) == 8
