"""The exit code of the train command: a run that lacks a measurement is unfinished."""

from __future__ import annotations

from pathlib import Path

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
