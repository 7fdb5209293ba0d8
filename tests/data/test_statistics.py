"""Statistics of channels: both files are read, and wrong ones are refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from tread_lab.config import UserError
from tread_lab.data.statistics import (
    LIGHTNING,
    OURS,
    Statistics,
    channel_statistics,
    write_statistics,
)


def test_what_was_written_is_read_back_exactly(tmp_path: Path) -> None:
    written = Statistics(np.array([0.1, -1 / 3]), np.array([1.0, 2 / 7]))
    write_statistics(tmp_path / "statistics.json", written)
    read = channel_statistics(str(tmp_path), 2)
    assert np.array_equal(read.mean_C, written.mean_C)
    assert np.array_equal(read.deviation_C, written.deviation_C)
    beside = channel_statistics(str(tmp_path / "data.npz"), 2)
    assert np.array_equal(beside.mean_C, written.mean_C)


TENSORS = ({"mean": torch.zeros(2)}, [1, 2], {"mean": 1, "std": 2}, b"nothing")
LISTS = (
    "{",
    '{"mean": [0, 0]}',
    '{"mean": [0], "deviation": [1]}',
    '{"mean": [0, NaN], "deviation": [1, 1]}',
    '{"mean": [0, 0], "deviation": [1, 0]}',
)


@pytest.mark.parametrize("content", [*LISTS, *TENSORS])
def test_wrong_statistics_are_one_line(tmp_path: Path, content: Any) -> None:
    if isinstance(content, str):
        (tmp_path / OURS).write_text(content)
    elif isinstance(content, bytes):
        (tmp_path / LIGHTNING).write_bytes(content)
    else:
        torch.save(content, tmp_path / LIGHTNING)
    with pytest.raises(UserError, match=r"^data.normalise: .* must hold a mean and .*$"):
        channel_statistics(str(tmp_path), 2)
