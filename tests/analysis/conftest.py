"""One synthetic sweep of the paper's placements with every kind of ending, and one with seeds."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from matplotlib.figure import Figure

from tests.synthetic import Synthetic, write_sweep
from tread_lab.frames import trials_frame
from tread_lab.records.lab import Lab

ENDINGS = {(0, 10): "diverged", (7, 8): "failed", (1, 8): "stopped", (0, 3): "pending"}


@pytest.fixture
def undrawn(monkeypatch: pytest.MonkeyPatch) -> None:
    """Save figures as empty files: rendering them takes most of the time."""

    def save(self: Figure, path: Any, **options: Any) -> None:
        path.write(b"") if hasattr(path, "write") else Path(path).write_bytes(b"")

    monkeypatch.setattr(Figure, "savefig", save)


@pytest.fixture(scope="session")
def paper_lab(tmp_path_factory: pytest.TempPathFactory) -> Lab:
    """The 16 published placements, one seed, four of them without a number."""
    return write_sweep(tmp_path_factory.mktemp("paper"), Synthetic(states=ENDINGS, pictures=True))


@pytest.fixture(scope="session")
def paper_frame(paper_lab: Lab) -> pd.DataFrame:
    """The rows of `paper_lab`."""
    return trials_frame(paper_lab, "placement")


@pytest.fixture(scope="session")
def seeds_frame(tmp_path_factory: pytest.TempPathFactory) -> pd.DataFrame:
    """Four placements at two rates and three seeds, one of whose runs failed."""
    sweep = Synthetic(
        routes=((0, 4), (0, 8), (2, 8), (4, 8)),
        rates=(0.5, 0.75),
        seeds=(0, 1, 2),
        seed_shift={0: 0.001, 1: -0.001},
        states={((4, 8), 2): "failed"},
        history=False,
        similarity=False,
    )
    return trials_frame(write_sweep(tmp_path_factory.mktemp("seeds"), sweep), "placement")


@pytest.fixture(scope="session")
def budget_lab(tmp_path_factory: pytest.TempPathFactory) -> Lab:
    """Two routes at three budgets with two seeds, sampled with and without guidance; one failed."""
    sweep = Synthetic(
        name="budget",
        routes=((2, 8), (0, 4)),
        rates=(0.5,),
        budgets=(100, 200, 400),
        seeds=(0, 1),
        states={((0, 4), 1): "failed"},
        unguided=True,
        history=False,
        similarity=False,
    )
    return write_sweep(tmp_path_factory.mktemp("budget"), sweep)


@pytest.fixture(scope="session")
def budget_frame(budget_lab: Lab) -> pd.DataFrame:
    """The rows of `budget_lab`."""
    return trials_frame(budget_lab, "budget")
