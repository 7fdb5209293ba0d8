"""Tensors are read as they were written, or not at all."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from tread_lab.metrics.checked_tensors import read_tensors, write_tensors


def test_tensors_come_back_and_every_change_is_noticed(tmp_path: Path) -> None:
    path = tmp_path / "x" / "t.safetensors"
    assert read_tensors(path) is None
    tensors = {"b": torch.arange(6).reshape(2, 3).T, "a": torch.tensor([0.5])}
    write_tensors(path, tensors)
    found = read_tensors(path) or {}
    assert found["b"].tolist() == [[0, 3], [1, 4], [2, 5]] and found["a"].tolist() == [0.5]
    whole = path.read_bytes()
    for place in (-1, -20, len(whole) // 2):
        damaged = bytearray(whole)
        damaged[place] ^= 1
        path.write_bytes(bytes(damaged))
        assert read_tensors(path) is None
    path.write_bytes(whole[:-1])
    assert read_tensors(path) is None


@pytest.mark.parametrize(
    "other",
    [{"b": torch.zeros(2, 3)}, {"a": torch.zeros(3, 2)}, {"a": torch.zeros(2, 3, dtype=torch.int)}],
    ids=["name", "shape", "type"],
)
def test_the_checksum_is_of_names_shapes_and_types_too(
    tmp_path: Path, other: dict[str, torch.Tensor]
) -> None:
    from safetensors import safe_open
    from safetensors.torch import save_file

    path = tmp_path / "t.safetensors"
    write_tensors(path, {"a": torch.zeros(2, 3)})
    with safe_open(path, "pt") as file:
        facts = file.metadata()
    save_file(other, path, facts)
    assert read_tensors(path) is None
