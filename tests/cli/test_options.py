"""What options mean: `--route` and `--rate`, parents by signature, the device of each run."""

from __future__ import annotations

import pytest

from tread_lab.cli.options import resources_of, run_spec
from tread_lab.config import UserError
from tread_lab.config.load import load_experiment


@pytest.mark.parametrize(
    ("routes", "rate", "found"),
    [
        (None, None, [(2, 8, 0.5)]),
        (None, 0.25, [(2, 8, 0.25)]),
        (["1->2", "5->6"], 0.75, [(1, 2, 0.75), (5, 6, 0.75)]),
    ],
)
def test_route_and_rate_replace_the_experiments(
    routes: list[str] | None, rate: float | None, found: list[tuple[int, int, float]]
) -> None:
    experiment = load_experiment("tiny", ["routes=['2->8']"])
    spec = run_spec(experiment, routes, rate)
    assert [(r.start, r.end, r.rate) for r in spec.routes] == found


def test_rate_requires_a_route() -> None:
    dense = load_experiment("tiny", ["routes=[]"])
    assert run_spec(dense, None, None).routes == () == run_spec(dense, [], None).routes
    with pytest.raises(UserError, match=r"^--rate: must have a route, got none"):
        run_spec(dense, None, 0.5)
    for rate in (-0.5, 1.0, float("nan")):
        with pytest.raises(UserError, match=rf"^--rate: must be in \[0, 1\), got {rate:g}\."):
            run_spec(dense, None, rate)


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
    monkeypatch.setattr("tread_lab.hardware.gpus", lambda: [None] * here)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0")
    assert resources_of(device, 1, gpus, None, 1, ray=False).gpus == expected
