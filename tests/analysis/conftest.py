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
        guided=True,
        history=False,
        similarity=False,
    )
    return write_sweep(tmp_path_factory.mktemp("budget"), sweep)


@pytest.fixture(scope="session")
def budget_frame(budget_lab: Lab) -> pd.DataFrame:
    """The rows of `budget_lab`."""
    return trials_frame(budget_lab, "budget")


@pytest.fixture
def metered_frame() -> pd.DataFrame:
    """Five routes beside a dense run of 60 kJ and 2 h; 2->8 spends 42 kJ and 1.5 h."""
    spent = {  # gap, its interval, kJ, hours
        "dense": (float("nan"), float("nan"), float("nan"), 60.0, 2.0),
        "2->8": (-0.002, -0.003, -0.001, 42.0, 1.5),
        "0->8": (0.004, 0.003, 0.005, 36.0, 1.2),
        "4->8": (0.001, -0.001, 0.003, 50.0, 1.7),
        "0->10": (0.009, 0.008, 0.010, 36.0, 1.1),
        "5->6": (0.002, 0.001, 0.003, 63.0, 2.1),
    }
    gap, low, high, kilojoules, hours = map(list, zip(*spent.values()))
    dense = [name == "dense" for name in spent]
    frame = pd.DataFrame(
        {
            "run": list(spent),
            "role": ["baseline" if is_dense else "trial" for is_dense in dense],
            "cell": [name if is_dense else f"{name} s=0.5" for name, is_dense in zip(spent, dense)],
            "route": list(spent),
            "seed": 0,
            "state": "completed",
            "reason": "",
            "baseline": [None if is_dense else "dense" for is_dense in dense],
            "gap/heldout": gap,
            "gap/heldout:low": low,
            "gap/heldout:high": high,
            "gap/heldout:n": [float("nan") if is_dense else 32.0 for is_dense in dense],
            "cost/train_seconds": [3600 * h for h in hours],
            "energy/joules": [1000 * kj for kj in kilojoules],
        }
    )
    frame.attrs |= {"axes": ["start", "end"], "foreign": []}
    return frame
