"""Tensors are read as they were written, or not at all."""

from __future__ import annotations

from pathlib import Path

import torch

from tread_lab.metrics.checked_tensors import read_tensors, write_tensors


def test_tensors_and_facts_come_back_and_every_change_is_noticed(tmp_path: Path) -> None:
    path = tmp_path / "x" / "t.safetensors"
    assert read_tensors(path) is None
    tensors = {"b": torch.arange(6).reshape(2, 3).T, "a": torch.tensor([0.5])}
    write_tensors(path, tensors, {"parts": "2"})
    found, facts = read_tensors(path) or ({}, {})
    assert facts == {"parts": "2"} and found["b"].tolist() == [[0, 3], [1, 4], [2, 5]]
    assert found["a"].tolist() == [0.5]
    whole = path.read_bytes()
    for place in (-1, -20, len(whole) // 2):
        damaged = bytearray(whole)
        damaged[place] ^= 1
        path.write_bytes(bytes(damaged))
        assert read_tensors(path) is None
    path.write_bytes(whole[:-1])
    assert read_tensors(path) is None


def test_a_file_without_a_checksum_is_not_read(tmp_path: Path) -> None:
    from safetensors.torch import save_file

    save_file({"a": torch.zeros(1)}, tmp_path / "t.safetensors", {"parts": "2"})
    assert read_tensors(tmp_path / "t.safetensors") is None
