"""What options mean: `--route` and `--rate`, parents by signature, the device of each run."""

from __future__ import annotations

import pytest

from tread_lab.cli.launch import resources_of


@pytest.mark.parametrize(
    ("gpus", "device", "here", "expected"),
    [
        (0.5, "cuda", True, 0.5),
        (None, "cuda:1", False, 1.0),
        (None, "cpu", True, 0.0),
        (None, None, True, 1.0),
        (None, None, False, 0.0),
    ],
)
def test_runs_take_a_gpu_if_present(
    gpus: float | None,
    device: str | None,
    here: bool,
    expected: float,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("tread_lab.cli.launch.visible_gpus", lambda: [None] * here)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0")
    assert resources_of(device, 1, gpus, None, 1, ray=False).gpus == expected
