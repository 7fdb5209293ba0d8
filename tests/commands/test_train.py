"""The exit code of the train command: a run that lacks a measurement is unfinished."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tread_lab.cli import main
from tread_lab.commands import train
from tread_lab.config.load import load_experiment
from tread_lab.records.lab import Lab
from tread_lab.records.status import RunState
from tread_lab.specs.decode import decode
from tread_lab.specs.run import RunSpec


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
