"""The same command again: a finished sweep returns at once, and less memory mends a run."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from tests.tasks.conftest import DONE, INLINE, MISTAKE, SMALL, Command, attempts
from tread_lab.records.lab import Lab
from tread_lab.train.trainer import Trainer


@pytest.mark.task(2)
def test_a_finished_sweep_trains_and_measures_nothing_again(
    swept_lab: Lab, run_command: Command
) -> None:
    records = [*swept_lab.root.glob("runs/**/*.json*"), *swept_lab.root.glob("runs/**/*.npz")]
    before, begun = {path: path.stat().st_mtime_ns for path in records}, attempts(swept_lab)
    assert len(begun) == 10 and set(begun.values()) == {1}
    assert run_command("sweep small.yaml", *INLINE).code == DONE
    assert attempts(swept_lab) == begun
    assert {path: path.stat().st_mtime_ns for path in records} == before


@pytest.mark.task(9)
def test_a_smaller_micro_batch_continues_the_run(
    run_command: Command, lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    step = Trainer.train_step

    def crowded(self: Trainer, *args: Any, **options: Any) -> Any:
        if (self.spec.execution.micro_batch or self.spec.train.batch) > 2 and self.step >= 2:
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2 GiB")
        return step(self, *args, **options)

    monkeypatch.setattr(Trainer, "train_step", crowded)
    command = f"train {SMALL} evaluate=[]"
    failed = run_command(command)
    (run,) = lab.runs()
    assert failed.code == MISTAKE and run.result() is None
    assert "micro_batch" in failed.out + failed.err
    again = run_command(f"{command} execution.micro_batch=2")
    assert again.code == DONE, again.err
    (same,) = lab.runs()
    assert same.name == run.name and same.state() == "completed"
    assert len({entry.step for entry in same.entries()}) == 4
