"""The train command: one run with its parents, what it says, its exit code."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.pretender import Pretender
from tread_lab.cli.main import main
from tread_lab.records.lab import Lab
from tread_lab.sweep.runner import InlineRunner
from tread_lab.sweep.task import TaskQueue

SMALL = [
    "train",
    "tiny",
    "model={depth: 4, width: 16, heads: 2}",
    "train.steps=2",
    "train.warmup=0",
]
HELDOUT = "evaluate=[{heldout_loss: {images: 8, levels: 2}}]"
HOW = ["--device", "cpu", "--root", "lab"]


@pytest.fixture
def tasks(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Nothing is trained: results are made up; what was to be executed is noted."""
    given: list[Any] = []

    def run(runner: InlineRunner, lab: Lab, queue: TaskQueue, watch: object) -> None:
        pretender = Pretender(lab)
        pretender.run(queue)
        given.append((runner.device, runner.threads, runner.worker.hang_timeout))
        given.extend(pretender.done)

    monkeypatch.setattr(InlineRunner, "run", run)
    return given


@pytest.mark.task(37)
def test_two_processes_have_the_losses_of_one(in_folder: Path) -> None:
    words = [*SMALL, "train.batch=4", "execution.log_every=1", "evaluate=[]", "--device", "cpu"]
    losses = []
    for count in (1, 2):
        assert main([*words, f"--processes={count}", f"--root={count}"]) == 0
        (run,) = Lab.at(str(count)).runs()
        assert [(a.ended, a.devices) for a in run.attempts()] == [("completed", count)]
        losses.append([e.value for e in run.entries() if e.key == "train/loss"])
    assert losses[0] == pytest.approx(losses[1], rel=1e-6) and len(losses[0]) == 2


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--gpus", "12"], "--gpus: must be at most 8 on this machine, got 12"),
        (["--gpus", "2", *HOW[:2]], "--device cpu: must not be combined with --gpus 2"),
        (["--gpus", "2", "--processes", "2"], "--processes: must be used with --device cpu."),
        (
            ["--processes", "3", "train.batch=8", *HOW[:2]],
            "train.batch: must be divisible by the number of devices (3), got 8. Try",
        ),
    ],
)
def test_impossible_device_count_is_refused(
    words: list[str],
    said: str,
    in_folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr("tread_lab.cli.train_and_evaluate.visible_gpus", lambda: [None] * 8)
    assert main([*SMALL, *words]) == 2
    assert said in capsys.readouterr().err


@pytest.mark.task(32)
def test_run_is_trained_measured_and_shown(
    in_folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for _ in range(2):
        assert main([*SMALL, HELDOUT, *HOW]) == 0
        shown = dict(line.split(maxsplit=1) for line in capsys.readouterr().out.splitlines())
        assert (shown["state"], shown["step"]) == ("completed", "2/2") and "heldout/loss" in shown
    (run,) = Lab.at("lab").runs()
    assert [attempt.n for attempt in run.attempts()] == [1]
    assert main(["export", run.name, "out", "--step", "1"]) == 2
    assert "checkpoint of step 1 is not there" in capsys.readouterr().err
    assert main(["export", run.name, "out", "--step", "2"]) == 0


def test_parents_run_before_with_options(
    in_folder: Path, tasks: list[Any], capsys: pytest.CaptureFixture[str]
) -> None:
    then = "then={routes: [], train: {steps: 1, warmup: 0}}"
    command = [*SMALL, HELDOUT, then, *HOW, "--threads", "3", "--hang-timeout", "60"]
    assert main(command) == 0
    settings, parent, child = tasks
    assert settings == ("cpu", 3, 60.0) and child.spec.parent == parent.spec
    assert "disk: at most " in capsys.readouterr().err
    assert main(command) == 0 and len(tasks) == 3
    assert main([*SMALL, HELDOUT, then, "seed=1", *HOW]) == 0 and len(tasks) == 6
    folder = Lab.at("lab").run(child.run)
    folder.reopen()
    assert main(command) == 0 and tasks[7:] == [child]
