"""The exit code of the train command: a run that lacks a measurement is unfinished."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tread_lab.cli import main
from tread_lab.commands import train
from tread_lab.config.load import load_experiment
from tread_lab.records.lab import Lab
from tread_lab.records.status import RunState
from tread_lab.specs.decode import decode, encode
from tread_lab.specs.evaluation import SamplesSpec
from tread_lab.specs.run import RunSpec
from tread_lab.sweep.execution.executor import Interrupted
from tread_lab.sweep.trial.task import Task


@pytest.mark.parametrize(("state", "code"), [(RunState.COMPLETED, 1), (RunState.DIVERGED, 0)])
def test_a_run_without_its_measurements_is_unfinished(
    state: RunState, code: int, in_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spec = decode(RunSpec, dict(load_experiment("tiny").run))
    folder = Lab(in_folder).run_of(spec)
    folder.create(spec)
    folder.finish(state, step=1)
    monkeypatch.setattr(train, "_complete", lambda *_: None)
    command = ["train", "tiny", "evaluate=[heldout_loss]", "--device", "cpu"]
    assert main([*command, "--root", str(in_folder)]) == code


class Executor:
    """Runs nothing, but notes what it would have run."""

    calls: list[Any]

    def __init__(self, **how: Any) -> None:
        self.device = how["device"]
        Executor.calls = [how]

    def run(self, lab: Lab, tasks: Any, watch: Any) -> None:
        self.calls.append((lab.root, [task.run for task in tasks]))
        self.calls.append([spec.kind for spec in tasks[0].evaluations])


def test_a_run_is_trained_and_shown_with_the_options_that_are_given(
    in_folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(train, "InlineExecutor", Executor)
    monkeypatch.setattr(train, "preflight", lambda tasks, devices: [])
    monkeypatch.setattr(train, "visible_device", lambda name: f"visible {name}")
    monkeypatch.setattr(train.Devices, "here", lambda device: device)
    shown: list[str] = []
    monkeypatch.setattr(train, "show_run", lambda folder: shown.append(folder.name))
    command = ["train", "tiny", "evaluate=[heldout_loss]", "--device", "cpu", "--threads", "3"]
    assert main([*command, "--hang-timeout", "60", "--root", str(in_folder)]) == 1
    run = Lab(in_folder).run_of(decode(RunSpec, dict(load_experiment("tiny").run))).name
    assert Executor.calls == [
        {"device": "visible cpu", "threads": 3, "hang_timeout": 60.0},
        (in_folder, [run]),
        ["heldout_loss"],
    ]
    assert shown == [run]


@pytest.mark.parametrize("retry", [True, False])
def test_a_failed_run_is_reopened_where_it_is_asked(
    retry: bool, in_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = Lab(in_folder).run_of(decode(RunSpec, dict(load_experiment("tiny").run)))
    folder.create(decode(RunSpec, dict(load_experiment("tiny").run)))
    folder.finish(RunState.FAILED, step=1, kind="exception")
    monkeypatch.setattr(train, "_complete", lambda *_: None)
    command = ["train", "tiny", "evaluate=[]", "--device", "cpu", "--root", str(in_folder)]
    assert main([*command, *(["--retry-failed"] if retry else [])]) == 1
    assert (folder.state() is RunState.FAILED) != retry


@pytest.mark.parametrize("alone", [True, False])
def test_what_a_run_and_its_parents_lack_is_checked_said_and_run(
    alone: bool, lab: Lab, tiny: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[Any] = []
    parent = tiny(steps=4)
    task = Task(tiny(seed=1, init_from={"run": encode(parent)}))
    if alone:
        lab.run_of(parent).create(parent)
        lab.run_of(parent).finish(RunState.COMPLETED, step=4)
    executor: Any = SimpleNamespace(
        device="cpu", run=lambda lab, tasks, watch: calls.append([t.spec.seed for t in tasks])
    )
    monkeypatch.setattr(train, "preflight", lambda tasks, devices: ["checked", *devices])
    monkeypatch.setattr(train.Devices, "here", lambda device: [device])
    monkeypatch.setattr(train, "disk_need", lambda tasks: [f"{len(tasks)} to store"])
    monkeypatch.setattr(train, "disk_lines", lambda need, lab: need)
    monkeypatch.setattr(train, "show_lines", lambda out, lines: calls.append((out, *lines)))
    train._complete(lab, task, executor)
    left = [1] if alone else [0, 1]
    checked = (train.notices, "checked", "cpu")
    assert calls == [checked, (train.notices, f"{len(left)} to store"), left]
    lab.run(task.run).create(task.spec)
    lab.run(task.run).finish(RunState.COMPLETED, step=20)
    calls.clear()
    train._complete(lab, task, executor)  # nothing, although a parent may be absent
    assert calls == []


def test_an_interrupted_run_says_how_it_goes_on(
    in_folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    tasks: list[Task] = []

    def interrupted(lab: Lab, task: Task, executor: Any) -> None:
        tasks.append(task)
        raise Interrupted

    monkeypatch.setattr(train, "_complete", interrupted)
    monkeypatch.setattr(train, "show_run", lambda folder: pytest.fail("no result to show"))
    command = ["train", "tiny", "evaluate=[fid@1k]", "sampler.steps=7", "reference=imagenet512"]
    assert main([*command, "--device", "cpu", "--root", str(in_folder)]) == 130
    (spec,) = tasks[0].evaluations
    assert isinstance(spec, SamplesSpec) and spec.sampler.steps == 7
    assert spec.reference is not None and spec.reference.name == "imagenet512"
    assert " ".join(capsys.readouterr().err.split()) == (
        "interrupted, a checkpoint is saved; run the same command again to continue run"
        f" {tasks[0].run}"
    )
    monkeypatch.setenv("WORLD_SIZE", "2")
    assert main([*command, "--device", "cpu", "--root", str(in_folder)]) == 2
