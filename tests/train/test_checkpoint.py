"""Checkpoints: which stay, which are taken, and what comes back from them."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from tread_lab.config import UserError
from tread_lab.records.run_folder import list_checkpoints, step_of
from tread_lab.train.checkpoint import (
    Checkpoint,
    load_latest,
    load_step,
    save,
)


def written(folder: Path, *steps: int, keep: int = 9, keep_steps: tuple[int, ...] = ()) -> None:
    for step in steps:
        tensors = {"model/w": torch.tensor([float(step)]), "ema/w": torch.zeros(1000)}
        facts = {"seed": "3"}
        save(folder, Checkpoint(step, tensors, facts), keep=keep, keep_steps=keep_steps)


def test_newest_and_kept_checkpoints_stay(tmp_path: Path) -> None:
    written(tmp_path, 1, 2, 3, 4, 5, keep=2, keep_steps=(2,))
    assert [step_of(path) for path in list_checkpoints(tmp_path)] == [5, 4, 2]
    written(tmp_path, 6, keep=1)
    save(tmp_path, Checkpoint(6, {"model/w": torch.tensor([2.0])}, {}), keep=5)  # in its place
    assert [step_of(path) for path in list_checkpoints(tmp_path)] == [6]
    assert load_step(tmp_path, 6).tensors["model/w"].tolist() == [2.0]
    assert sorted(path.suffix for path in tmp_path.iterdir()) == [".safetensors"]


def test_newest_whole_checkpoint_is_loaded(tmp_path: Path) -> None:
    assert load_latest(tmp_path) is None
    written(tmp_path, 1, 11, 12)
    (tmp_path / "step-99.safetensors").touch()
    newest, second, _ = list_checkpoints(tmp_path)
    for path in (newest, second):
        content = bytearray(path.read_bytes())
        content[-1] ^= 1
        path.write_bytes(bytes(content))
    with pytest.warns(UserWarning, match="is damaged; using the previous checkpoint"):
        found = load_latest(tmp_path)
    assert found is not None and (found.step, dict(found.facts)) == (1, {"seed": "3", "step": "1"})
    assert {name: len(tensor) for name, tensor in found.part("model").items()} == {"w": 1}
    assert found.part("mod") == {} and list(found.part("ema")) == ["w"]
    with pytest.raises(UserError, match=r"12 is damaged \(checksum\) in .* steps 1, 11, 12;"):
        load_step(tmp_path, 12)
    newest.unlink()
    second.unlink()
    with pytest.raises(UserError, match=r"of step 12 is not there in .*, which has steps 1;"):
        load_step(tmp_path, 12)
