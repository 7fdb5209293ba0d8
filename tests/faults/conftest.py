"""What tests of faults share: undisturbed sweeps."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.faults.compare import Run, outcome
from tests.faults.drivers import Place, Zygote
from tests.faults.sweeps import SMALL


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
