"""What options mean: `--route` and `--rate`, parents by signature, the device of each run."""

from __future__ import annotations

import os
from typing import Any

import pytest

from tread_lab.commands import resolve
from tread_lab.commands.resolve import (
    check_one_device,
    gpus_per_run,
    run_spec,
    visible_device,
)
from tread_lab.config.load import load_experiment
from tread_lab.specs import UserError
from tread_lab.specs.sweep import Experiment


@pytest.mark.parametrize(
    ("routes", "rate", "found"),
    [
        (None, None, [(2, 8, 0.5)]),
        (None, 0.25, [(2, 8, 0.25)]),
        (["1->2", "5->6"], 0.75, [(1, 2, 0.75), (5, 6, 0.75)]),
    ],
)
def test_routes_and_their_rates_are_replaced(
    routes: list[str] | None, rate: float | None, found: list[tuple[int, int, float]]
) -> None:
    experiment = load_experiment("tiny", ["routes=['2->8']"])
    spec = run_spec(experiment, routes, rate)
    assert [(r.start, r.end, r.rate) for r in spec.routes] == found


def test_a_rate_of_no_route_is_refused_and_a_dense_run_needs_none() -> None:
    dense = load_experiment("tiny", ["routes=[]"])
    assert run_spec(dense, None, None).routes == () == run_spec(dense, [], None).routes
    with pytest.raises(UserError, match=r"^--rate: there is no route; add --route"):
        run_spec(dense, None, 0.5)
    for rate in (-0.5, 1.0, float("nan")):
        with pytest.raises(UserError, match=rf"^--rate: {rate:g} is outside \[0, 1\)$"):
            run_spec(dense, None, rate)


def test_a_rate_is_of_the_stage_before_a_finetune_and_the_finetune_stays() -> None:
    then: Any = {"routes": [], "train": {"steps": 10, "warmup": 0}}
    loaded = load_experiment("tiny", ["routes=['2->8']"])
    staged = Experiment(name="tiny", run={**loaded.run, "then": then})
    spec = run_spec(staged, None, 0.25)
    assert spec.routes == () and spec.train.steps == 10
    assert [route.rate for route in spec.ancestors[0].routes] == [0.25]


@pytest.mark.parametrize(
    ("device", "ray", "visible", "left", "found"),
    [
        ("cuda:1", True, None, "1", "cuda"),  # the only one that workers see
        ("cuda:1", True, "4,6,7", "6", "cuda"),
        ("cuda:1", True, "GPU-a, b, c", "b", "cuda"),
        ("cpu", False, None, "", "cpu"),  # which hides every GPU
        ("cuda:1", False, None, None, "cuda:1"),
        *[(name, True, None, None, name) for name in ("cuda", "cuda:3", "cuda:x", "meta:1", None)],
    ],
)
def test_the_named_gpu_is_the_only_one_that_workers_see(
    device: Any, ray: bool, visible: Any, left: Any, found: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(resolve, "visible_gpus", lambda: [None] * 3)
    monkeypatch.setenv("RAY_ADDRESS", "")  # names no cluster
    if visible is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    assert visible_device(device, ray=ray) == found
    assert os.environ.get("CUDA_VISIBLE_DEVICES") == left
    monkeypatch.setenv("RAY_ADDRESS", "head:6379")
    assert visible_device("cuda", ray=True) == "cuda"
    with pytest.raises(UserError, match=r"^--device cuda:1: .* say --device cuda$"):
        visible_device("cuda:1", ray=True)  # of a joined cluster


@pytest.mark.parametrize(
    ("gpus", "device", "here", "expected"),
    [
        (0.5, "cpu", True, 0.5),
        (0.0, "cuda", True, 0.0),
        (None, "cuda:1", False, 1.0),
        (None, "cpu", True, 0.0),
        (None, None, True, 1.0),
        (None, None, False, 0.0),
    ],
)
def test_a_run_has_the_gpus_that_are_asked_for_else_one_where_there_is_any(
    gpus: float | None,
    device: str | None,
    here: bool,
    expected: float,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(resolve, "visible_gpus", lambda: [None] * here)
    assert gpus_per_run(gpus, device) == expected


@pytest.mark.parametrize(
    ("name", "alone"),
    [("WORLD_SIZE", "1"), ("RANK", "0"), ("LOCAL_RANK", "-1"), ("OMPI_COMM_WORLD_SIZE", "1"),
     ("PMI_SIZE", "1"), ("LOCAL_RANK", "0")],
)  # fmt: skip
def test_a_command_is_one_process(name: str, alone: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(name, alone)
    check_one_device()
    monkeypatch.setenv(name, "2")
    with pytest.raises(UserError, match=f"^{name}=2: torchrun or mpirun"):
        check_one_device()
