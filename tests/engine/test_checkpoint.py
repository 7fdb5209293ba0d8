"""Checkpoints of `keep_steps` are written at those steps and survive all later ones."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from tests.engine.runs import small_run, train_until
from tread_lab.engine.checkpoint import Checkpoint, list_checkpoints, load_step, save
from tread_lab.specs import UserError, signature


def steps_on_disk(folder: Path) -> list[int]:
    return sorted(int(p.name.split("-")[1]) for p in list_checkpoints(folder / "checkpoints"))


def test_kept_steps_stay_beside_the_newest(tmp_path: Path) -> None:
    execution = {"checkpoint_every": 2, "keep_checkpoints": 1, "keep_steps": [1, 4]}
    train_until(small_run(execution=execution), tmp_path)
    assert steps_on_disk(tmp_path) == [1, 4, 6]
    assert load_step(tmp_path / "checkpoints", 1).step == 1


def test_keeping_steps_is_execution_not_science() -> None:
    kept = small_run(execution={"keep_steps": [3]})
    assert signature(kept) == signature(small_run())


def test_a_step_that_cannot_be_kept_is_refused() -> None:
    with pytest.raises(UserError, match=r"^execution: keep_steps: \[0\] must be positive"):
        small_run(execution={"keep_steps": [0]})


def test_a_step_written_again_replaces_its_earlier_file(tmp_path: Path) -> None:
    for value in (1.0, 2.0):
        save(tmp_path, Checkpoint(3, {"model/w": torch.tensor([value])}, {}), keep=5)
    assert len(list_checkpoints(tmp_path)) == 1
    assert load_step(tmp_path, 3).tensors["model/w"].tolist() == [2.0]
