"""Claims about `--device` under Ray, whose workers number the GPUs that they see from 0."""

from __future__ import annotations

import os
from argparse import Namespace

import pytest
import torch

from tread_lab.commands.executors import show_gpus
from tread_lab.specs import UserError


@pytest.fixture(autouse=True)
def _three_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 3)


def ray_on(device: str) -> Namespace:
    return Namespace(executor="ray", device=device)


@pytest.mark.parametrize(("visible", "one"), [(None, "1"), ("4,6,7", "6"), ("GPU-a, b, c", "b")])
def test_the_named_gpu_is_the_only_one_that_workers_see(
    visible: str | None, one: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if visible is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    options = ray_on("cuda:1")
    show_gpus(options)
    assert os.environ["CUDA_VISIBLE_DEVICES"] == one and options.device == "cuda"


def test_the_cpu_hides_every_gpu() -> None:
    show_gpus(Namespace(device="cpu"))
    assert os.environ["CUDA_VISIBLE_DEVICES"] == ""


@pytest.mark.parametrize("device", ["cuda", "cuda:3", None])
def test_other_devices_change_nothing(device: str) -> None:
    options = ray_on(device)
    show_gpus(options)
    assert "CUDA_VISIBLE_DEVICES" not in os.environ and options.device == device


def test_a_gpu_of_a_joined_cluster_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RAY_ADDRESS", "head:6379")
    with pytest.raises(UserError, match=r"^--device cuda:1: .* say --device cuda$"):
        show_gpus(ray_on("cuda:1"))
