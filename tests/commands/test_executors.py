"""Claims about `--device` under Ray, whose workers number the GPUs that they see from 0."""

from __future__ import annotations

import os

import pytest
import torch

from tread_lab.commands.executors import visible_device
from tread_lab.specs import UserError


@pytest.fixture(autouse=True)
def _three_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 3)


@pytest.mark.parametrize(("visible", "one"), [(None, "1"), ("4,6,7", "6"), ("GPU-a, b, c", "b")])
def test_the_named_gpu_is_the_only_one_that_workers_see(
    visible: str | None, one: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if visible is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    assert visible_device("cuda:1", ray=True) == "cuda"
    assert os.environ["CUDA_VISIBLE_DEVICES"] == one


def test_the_cpu_hides_every_gpu() -> None:
    assert visible_device("cpu") == "cpu"
    assert os.environ["CUDA_VISIBLE_DEVICES"] == ""


@pytest.mark.parametrize("device", ["cuda", "cuda:3", None])
def test_other_devices_change_nothing(device: str | None) -> None:
    assert visible_device(device, ray=True) == device
    assert "CUDA_VISIBLE_DEVICES" not in os.environ


def test_a_gpu_of_a_joined_cluster_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RAY_ADDRESS", "head:6379")
    with pytest.raises(UserError, match=r"^--device cuda:1: .* say --device cuda$"):
        visible_device("cuda:1", ray=True)
