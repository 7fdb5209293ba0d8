"""The ranking on a terminal: which columns, in which order, over what its intervals are."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from tests.cli.conftest import Screen
from tests.four_sweeps import made_frame
from tests.synthetic import small, write_sweep
from tread_lab.cli import show_ranking as ranking
from tread_lab.cli.show_ranking import show_places, show_ranking
from tread_lab.records.lab import Lab
from tread_lab.results import trials_frame


@pytest.fixture
def rank(screen: Screen, lab: Lab, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Show the ranking of a frame as a scene."""

    def show(title: str, frame: pd.DataFrame, *, width: int = 160) -> None:
        monkeypatch.setattr(ranking, "trials_frame", lambda lab, name: frame)
        screen.width = width
        screen(title, show_ranking, lab, "s", as_json=False)

    return show


def samples(runs: int, metrics: int, **more: list[Any]) -> pd.DataFrame:
    """A baseline and trials with so many metrics of samples, all 1, 2, ... by run."""
    names = ["dense", *(f"c{k}" for k in range(1, runs))]
    numbers = {f"fd@{k + 1}k": [float(r) for r in range(runs)] for k in range(metrics)}
    return made_frame(*names, **numbers, **more)


def gaps(**columns: Any) -> pd.DataFrame:
    """A baseline and three trials, of which the last failed."""
    frame = made_frame("dense", "a", "b", "c", state=["completed"] * 3 + ["failed"], **{
        "reason": ["", "", "", "no" + 88 * "x"], "heldout/loss": [2.0, 1.5, 2.25, None],
        "gap/heldout": [None, -0.5, 0.25, None], "gap/heldout:low": [None, -0.75, 0.0, None],
        "gap/heldout:high": [None, -0.25, 0.5, None], "gap/heldout:n": [None, 8, 8, None],
        "gap/heldout:kept": [None, 0.25, 0.25, None], "fd@1k": [4.0, 3.0, 5.0, None],
    })  # fmt: skip
    return frame.assign(**columns)


def test_the_best_cell_is_first_with_its_interval(rank: Any, monkeypatch: Any) -> None:
    plain = gaps(reason=[""] * 4)
    rank("a reason of 90 characters is cut", gaps())
    for width in (160, 55, 50, 35):
        rank(f"no reason, {width} columns", plain, width=width)
    own = gaps(run=["dense", "dense", "b", "c"], **{"gap/heldout:kept": [None, 0.0, 0.5, None]})
    rank("a trial is its own baseline: it counts nothing in the variance", own)
    rank("unpaired", gaps(**{"gap/heldout:kept": [float("nan")] * 4}))
    digits = gaps(**{"heldout/loss": [2.123456, 1.5, 2.25, None], "gap/heldout:kept": 0.123456})
    digits["gap/heldout"] = [None, -0.5123456, 0.25, None]
    digits["gap/heldout:low"] = [None, -0.7512345, 0.0, None]
    rank("digits are those of the interval, else four", digits)
    foreign = made_frame("dense", "a", **{"heldout/loss": [2.0, 1.5], "fd@1k": [None, 3.0]})
    rank("few runs have the FD", foreign)
    foreign.attrs["foreign"] = ["fd@1k"]
    rank("they were given it by another sweep", foreign)
    monkeypatch.setattr(ranking, "mixtures", lambda lab, runs: ["code a and code b"])
    rank("the baseline is lost and code is mixed", gaps(state=["failed", *["completed"] * 3]))
    rank("a row for each metric, code is mixed", samples(2, 7))


def test_intervals_of_several_seeds_are_said_to_be_over_seeds(
    screen: Screen, tmp_path: Path
) -> None:
    for title, states in (("two seeds", {}), ("one of them failed", {((2, 8), 1): "failed"})):
        shift = {0: 0.001, 1: -0.001}
        sweep = small(seeds=(0, 1), states=states, seed_shift=shift)
        lab, screen.width = write_sweep(tmp_path / title, sweep), 100
        screen(title, show_ranking, lab, "placement", as_json=False)


@pytest.mark.parametrize(("cells", "last"), [(40, []), (41, ["... and 1 more"])])
def test_the_best_40_cells_are_shown(
    cells: int,
    last: list[str],
    monkeypatch: pytest.MonkeyPatch,
    lab: Lab,
    capsys: pytest.CaptureFixture[str],
) -> None:
    names = ["dense", *(f"c{k}" for k in range(1, cells))]
    frame = made_frame(*names, **{"fd@1k": [float(k) for k in range(cells)]})
    monkeypatch.setattr(ranking, "trials_frame", lambda lab, name: frame)
    show_ranking(lab, "s", as_json=False)
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[1] for line in lines[1:41]] == names[:40] and lines[41:-1] == last


def test_the_ranking_for_scripts_is_the_rows_of_the_trials(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lab = write_sweep(tmp_path, small())
    show_ranking(lab, "placement", as_json=True)
    rows = json.loads(capsys.readouterr().out)
    assert [row["run"] for row in rows] == list(trials_frame(lab, "placement")["run"])


def test_the_places_of_figures_records_and_mlflow_are_said(
    lab: Lab, screen: Screen, rank: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = lab.sweep("s")
    screen("no figures, no MLflow", show_places, lab, folder, [], mlflow=False)
    screen("a figure was drawn", show_places, lab, folder, [Path("a.png")], mlflow=False)
    folder.figures.mkdir(parents=True)
    screen("figures of earlier, MLflow", show_places, lab, folder, [], mlflow=True)
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "postgresql://me:secret@host/mlflow")
    screen("a server with a password", show_places, lab, folder, [], mlflow=True)
    rank("no run has begun", pd.DataFrame())
