"""What every test needs: one thread, a home of its own, a tiny run."""

from __future__ import annotations

import os
import secrets
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

os.environ.setdefault("OMP_NUM_THREADS", "1")

from tread_lab.records.layout import Lab
from tread_lab.spec import RunSpec, decode

MODEL = {"depth": 4, "width": 16, "heads": 2}


@pytest.fixture(autouse=True)
def _own_world(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    """No test reads or writes the user's home, lab or tracking server."""
    monkeypatch.setenv("HOME", str(tmp_path_factory.mktemp("home")))
    # A process that has started Ray keeps its token, and a second cluster looks for it on disk.
    token = tmp_path_factory.getbasetemp() / "ray_token"
    if not token.exists():
        token.write_text(secrets.token_hex(32))
    monkeypatch.setenv("RAY_AUTH_TOKEN_PATH", str(token))
    if "CUDA_VISIBLE_DEVICES" not in os.environ:  # what a command sets is undone
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
        monkeypatch.delenv("CUDA_VISIBLE_DEVICES")
    for name in ("TREAD_LAB_ROOT", "MLFLOW_TRACKING_URI", "RAY_ADDRESS"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture(scope="session", autouse=True)
def _one_thread() -> None:
    import torch

    torch.set_num_threads(1)


@pytest.fixture
def lab(tmp_path: Path) -> Lab:
    return Lab(tmp_path / "lab")


@pytest.fixture
def tiny() -> Callable[..., RunSpec]:
    """A run of seconds on the embedded data: `tiny(routes=["1->2"], steps=20)`."""

    def make(*, steps: int = 20, execution: dict[str, Any] | None = None, **more: Any) -> RunSpec:
        train = {"steps": steps, "batch": 8, "lr": 3e-3, "warmup": 2, "schedule": "sqrt_decay"}
        train |= {"ema": {"halflife": 0.1}, **more.pop("train", {})}
        execution = {"log_every": 5, "checkpoint_every": 10, **(execution or {})}
        tree = {"model": MODEL, "precision": "fp32", "train": train, "execution": execution}
        return decode(RunSpec, {**tree, **more})

    return make


@pytest.fixture
def in_folder(tmp_path: Path) -> Iterator[Path]:
    """The current folder is an empty one."""
    before = Path.cwd()
    os.chdir(tmp_path)
    yield tmp_path
    os.chdir(before)
