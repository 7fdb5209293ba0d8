"""What every test needs: one thread, a home and a lab of its own."""

from __future__ import annotations

import gc
import itertools
import os
import secrets
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

os.environ.setdefault("OMP_NUM_THREADS", "1")
# Ray's workers are nice by 15: beside other tests on two cores they would get a thirtieth of one.
os.environ.setdefault("RAY_worker_niceness", "0")

from tread_lab.records.lab import Lab

if TYPE_CHECKING:
    from tests.faults.drivers import Zygote

pytest_plugins = ("tests.four_sweeps",)

_homes = itertools.count()

# The files that take longest, most seconds first; a worker takes up a whole file at a time. Those
# of Ray stand apart, so that seldom three clusters start at once.
LONGEST = (
    "faults/test_nodes.py",
    "end_to_end/test_sweep.py",
    "golden/test_networks.py",
    "analysis/test_notebooks.py",
    "train/test_ranks.py",
    "seeing/test_page.py",
    "tracking/test_live_server.py",
    "end_to_end/test_whole_tasks.py",
    "faults/test_ray_runs.py",
    "faults/test_bad_runs.py",
    "train/test_loop.py",
    "faults/test_crash.py",
    "train/test_device.py",
    "analysis/figures/test_catalogue.py",
    "tracking/test_mlflow.py",
    "train/test_compiled.py",
    "tasks/test_edit.py",
    "tasks/test_views.py",
    "seeing/test_mlflow_pages.py",
    "docs/test_recipes.py",
    "faults/test_kills.py",
)


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Put the longest files first, then files with slow tests: what begins last must be short.

    What is long is skipped unless TREAD_LAB_LONG is set.
    """
    if "TREAD_LAB_LONG" not in os.environ:
        skip = pytest.mark.skip(reason="long; `make faults` or TREAD_LAB_LONG=1")
        marked = ((item, item.get_closest_marker("long")) for item in items)
        for item in (item for item, mark in marked if mark and not mark.args):
            item.add_marker(skip)
    slow = {item.path for item in items if item.get_closest_marker("slow")}
    place = {Path(__file__).parent / name: k for k, name in enumerate(LONGEST)}
    last = len(LONGEST)
    items.sort(key=lambda item: (place.get(item.path, last), item.path not in slow))


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Iterator[None]:
    """Spare the garbage collector the thousands of tests, which stay to the end."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()
        gc.collect()
        gc.freeze()


@pytest.hookimpl(trylast=True)
def pytest_runtest_teardown(item: pytest.Item, nextitem: pytest.Item | None) -> None:
    """Spare the garbage collector what a file has imported: each run collects before it begins."""
    if nextitem is None or nextitem.path != item.path:
        gc.collect()
        gc.freeze()


def pytest_sessionfinish() -> None:
    gc.unfreeze()


@pytest.fixture(scope="session", autouse=True)
def _no_power_cut() -> Iterator[None]:
    """No file of this process is waited for until a disk holds it, which only losing power shows.

    Who waits for which file is told by tests that put their own `fsync` in this place.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", os.fstat)
        yield


@pytest.fixture(autouse=True)
def _own_world(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    """No test reads or writes the user's home, lab or tracking server."""
    home = tmp_path_factory.getbasetemp() / "homes" / str(next(_homes))
    home.mkdir(parents=True)  # `mktemp` would look through thousands of others
    monkeypatch.setenv("HOME", str(home))
    # In a new home every process would look through the fonts of this machine.
    base = tmp_path_factory.getbasetemp()
    shared = base.parent if "PYTEST_XDIST_WORKER" in os.environ else base
    monkeypatch.setenv("MPLCONFIGDIR", str(shared / "matplotlib"))
    # A process that has started Ray keeps its token, and a second cluster looks for it on disk.
    token = tmp_path_factory.getbasetemp() / "ray_token"
    if not token.exists():
        token.write_text(secrets.token_hex(32))
    monkeypatch.setenv("RAY_AUTH_TOKEN_PATH", str(token))
    if "CUDA_VISIBLE_DEVICES" not in os.environ:  # what a command sets is undone
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
        monkeypatch.delenv("CUDA_VISIBLE_DEVICES")
    if "torch" in sys.modules:  # which may have counted the GPUs while a command hid them
        monkeypatch.setattr("torch.cuda._cached_device_count", None)
    for name in ("TREAD_LAB_ROOT", "MLFLOW_TRACKING_URI", "RAY_ADDRESS"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture(autouse=True)
def _one_thread() -> None:
    """Whatever a command has set before: sums of three threads are not those of one."""
    import torch

    torch.set_num_threads(1)


@pytest.fixture
def lab(tmp_path: Path) -> Lab:
    return Lab(tmp_path / "lab")


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Any:
    """`time.monotonic`, which stands still at 100 unless a test moves `clock.now`."""
    standing = SimpleNamespace(now=100.0)
    monkeypatch.setattr(time, "monotonic", lambda: standing.now)
    return standing


@pytest.fixture
def in_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder is an empty one."""
    monkeypatch.chdir(tmp_path)  # undone together with every other change of folder
    return tmp_path


@pytest.fixture
def no_figures(monkeypatch: pytest.MonkeyPatch) -> None:
    """A sweep in this process draws nothing at its end: figures take seconds."""
    undrawn = "tread_lab.analysis.figures.catalogue.write_figures"
    monkeypatch.setattr(undrawn, lambda lab, sweep: [])


@pytest.fixture(scope="session")
def zygote() -> Iterator[Zygote]:
    """The process that commands are forked from: each is one of its own, its imports done."""
    from tests.faults.drivers import Zygote

    started = Zygote()
    yield started
    started.close()


@pytest.fixture(scope="session")
def random_inception_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A file in the format of the published Inception, with random numbers."""
    pytest.importorskip("torch_fidelity")
    import torch

    from tests.stand_ins import random_inception

    path = tmp_path_factory.mktemp("inception") / "random.pth"
    torch.save(random_inception().state_dict(), path)
    return path
