"""What options mean: `--route` beside overrides, the device of each run."""

from __future__ import annotations

import pytest

from tread_lab.cli.launch import resources_of
from tread_lab.cli.options import routed, run_spec
from tread_lab.config.load import load_experiment


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


def test_overrides_change_the_named_route() -> None:
    loaded = load_experiment("tiny", routed(["2->8"], ["route.selection=rows"]))
    route = run_spec(loaded, 0.25).routes[0]
    assert (str(route), route.selection, route.rate) == ("2->8", "rows", 0.25)
