"""What tests of faults share: the process that drivers are forked from, and undisturbed sweeps."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.faults.compare import Run, outcome
from tests.faults.drivers import Place, Zygote
from tests.faults.sweeps import SMALL


@pytest.fixture(scope="session")
def zygote() -> Iterator[Zygote]:
    found = Zygote()
    yield found
    found.close()


@pytest.fixture
def place(zygote: Zygote, tmp_path: Path) -> Place:
    """An empty folder with the small sweep's file."""
    return Place(zygote, tmp_path).write(SMALL)


@pytest.fixture(scope="session")
def undisturbed(zygote: Zygote, tmp_path_factory: pytest.TempPathFactory) -> Place:
    """The small sweep, run once without any fault."""
    place = Place(zygote, tmp_path_factory.mktemp("undisturbed")).write(SMALL)
    place.finish()
    return place


@pytest.fixture(scope="session")
def expected(undisturbed: Place) -> dict[str, Run]:
    """What the small sweep's lab holds when nothing goes wrong."""
    return outcome(undisturbed.lab)


_outcomes: dict[str, str] = {}


def pytest_runtest_logreport(report: Any) -> None:
    """Keep how each test ended, for the table of faults."""
    if "tests/faults/" not in report.nodeid:
        return
    name = report.nodeid.rpartition("::")[2].partition("[")[0]
    if report.failed:
        _outcomes[name] = "failed"
    elif report.skipped:
        _outcomes.setdefault(name, f"skipped: {report.longrepr[2].removeprefix('Skipped: ')}")
    elif report.when == "call" and _outcomes.get(name) != "failed":
        _outcomes[name] = "passed"


def pytest_sessionfinish() -> None:
    path = os.environ.get("FAULT_OUTCOMES")
    if path:
        Path(path).write_text(json.dumps(_outcomes, indent=1))
