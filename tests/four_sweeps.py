"""Synthetic sweeps: the paper's placements with every kind of ending, seeds, budgets."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from tests.synthetic import Synthetic, write_sweep
from tread_lab.records.lab import Lab
from tread_lab.results import trials_frame

ENDINGS = {(0, 10): "diverged", (7, 8): "failed", (1, 8): "stopped", (0, 3): "pending"}


@pytest.fixture(scope="session")
def paper_lab(tmp_path_factory: pytest.TempPathFactory) -> Lab:
    """The 16 published placements, one seed, four of them without a number."""
    return write_sweep(tmp_path_factory.mktemp("paper"), Synthetic(states=ENDINGS, pictures=True))


@pytest.fixture(scope="session")
def paper_frame(paper_lab: Lab) -> pd.DataFrame:
    """The rows of `paper_lab`."""
    return trials_frame(paper_lab, "placement")


@pytest.fixture(scope="session")
def seeds_lab(tmp_path_factory: pytest.TempPathFactory) -> Lab:
    """Four placements at two rates and three seeds; one of the runs failed."""
    sweep = Synthetic(
        routes=((0, 4), (0, 8), (2, 8), (4, 8)),
        rates=(0.5, 0.75),
        seeds=(0, 1, 2),
        seed_shift={0: 0.001, 1: -0.001},
        states={((4, 8), 2): "failed"},
        history=False,
        similarity=False,
        specs=True,
    )
    return write_sweep(tmp_path_factory.mktemp("seeds"), sweep)


@pytest.fixture(scope="session")
def seeds_frame(seeds_lab: Lab) -> pd.DataFrame:
    """The rows of `seeds_lab`."""
    return trials_frame(seeds_lab, "placement")


def made_frame(*cells: str, **columns: list[Any]) -> pd.DataFrame:
    """A baseline and trials, one seed each; the run of a cell is called like the cell."""
    runs = [*cells]
    frame: dict[str, Any] = {"run": runs, "cell": runs, "seed": 3, "state": "completed"}
    frame |= {"reason": "", "mixed": False}
    frame |= {"role": ["baseline", *["trial"] * (len(runs) - 1)]}
    frame |= {"baseline": [None, *[runs[0]] * (len(runs) - 1)]}
    return pd.DataFrame({**frame, **columns})


@pytest.fixture
def metered_frame() -> pd.DataFrame:
    """Five routes beside a dense run of 2 h; 2->8 spends 1.5 h."""
    spent = {  # gap, its interval, hours
        "dense": (float("nan"), float("nan"), float("nan"), 2.0),
        "2->8": (-0.002, -0.003, -0.001, 1.5),
        "0->8": (0.004, 0.003, 0.005, 1.2),
        "4->8": (0.001, -0.001, 0.003, 1.7),
        "0->10": (0.009, 0.008, 0.010, 1.1),
        "5->6": (0.002, 0.001, 0.003, 2.1),
    }
    gap, low, high, hours = map(list, zip(*spent.values()))
    frame = made_frame(*spent, **{
        "cell": ["dense", *(f"{route} s=0.5" for route in [*spent][1:])], "route": list(spent),
        "gap/heldout": gap, "gap/heldout:low": low, "gap/heldout:high": high,
        "gap/heldout:n": [float("nan"), *[32.0] * 5],
        "cost/train_seconds": [3600 * h for h in hours],
        "cost/device_hours": hours,
    })  # fmt: skip
    frame.attrs |= {"axes": ["start", "end"], "foreign": []}
    return frame


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
        specs=True,
    )
    return write_sweep(tmp_path_factory.mktemp("budget"), sweep)


def same_as_stored(path: Path, text: str) -> None:
    """Compare a text with that of a file."""
    if "RENEW_SCREENS" in os.environ:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    assert text == path.read_text(), f"RENEW_SCREENS=1 renews {path.name}"
