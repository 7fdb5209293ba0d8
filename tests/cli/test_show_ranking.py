"""The ranking on a terminal: best first, with intervals, and no value cut."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from tests.four_sweeps import made_frame
from tests.synthetic import small, write_sweep
from tread_lab.cli import show_ranking as ranking
from tread_lab.cli.console import answers, metrics_line, say
from tread_lab.cli.show_ranking import show_places, show_ranking
from tread_lab.records.lab import Lab
from tread_lab.results import trials_frame

LONG = "[b]" + 300 * "x" + "[/b]"  # text that rich would take for markup, longer than a line


def gaps(**columns: Any) -> pd.DataFrame:
    """A baseline and three trials, of which the last failed."""
    frame = made_frame("dense", "a", "b", "c", state=["completed"] * 3 + ["failed"], **{
        "reason": ["", "", "", "no" + 88 * "x"], "heldout/loss": [2.0, 1.5, 2.25, None],
        "gap/heldout": [None, -0.5, 0.25, None], "gap/heldout:low": [None, -0.75, 0.0, None],
        "gap/heldout:high": [None, -0.25, 0.5, None], "gap/heldout:n": [None, 8, 8, None],
        "gap/heldout:kept": [None, 0.25, 0.25, None], "fd@1k": [4.0, 3.0, 5.0, None],
    })  # fmt: skip
    return frame.assign(**columns)


@pytest.mark.parametrize(
    ("frame", "said"),
    [
        (gaps(), ["a", "\N{MINUS SIGN}0.50 ± 0.25", "paired; using equal images", "no" + 78 * "x"]),
        (gaps(**{"gap/heldout:kept": [float("nan")] * 4}), ["difference to the baseline, paired"]),
        (gaps(state=["failed", *["completed"] * 3]), ["baseline dense", "nothing to compare"]),
        (made_frame("dense", "a", **{"fd@1k": [2.0, 1.0]}), ["fd@1k", "1.00"]),
        (pd.DataFrame(), []),
    ],
)
def test_ranking_shows_gaps_and_reasons(
    frame: pd.DataFrame,
    said: list[str],
    lab: Lab,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(ranking, "trials_frame", lambda lab, name: frame)
    show_ranking(lab, "s", as_json=False)
    out, err = capsys.readouterr()
    assert all(text in out for text in said), out
    assert ("no run of s has begun" in err) == frame.empty


@pytest.mark.parametrize("width", [55, 35])
def test_narrow_tables_cut_no_value(
    width: int, lab: Lab, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(ranking, "trials_frame", lambda lab, name: gaps(reason=[""] * 4))
    monkeypatch.setattr(answers, "width", width)
    show_ranking(lab, "s", as_json=False)
    shown = "".join(capsys.readouterr().out.split())
    assert {*"completed2.250"} <= {*shown}


def test_intervals_name_their_seeds(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lab = write_sweep(tmp_path, small(seeds=(0, 1), seed_shift={0: 0.001, 1: -0.001}))
    show_ranking(lab, "placement", as_json=False)
    assert "±: 95% interval over 2 seeds" in capsys.readouterr().out


@pytest.mark.parametrize(("cells", "last"), [(40, []), (41, ["... and 1 more"])])
def test_best_40_cells_are_shown(
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


def test_json_ranking_is_the_trials(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lab = write_sweep(tmp_path, small())
    show_ranking(lab, "placement", as_json=True)
    rows = json.loads(capsys.readouterr().out)
    assert [row["run"] for row in rows] == list(trials_frame(lab, "placement")["run"])


def test_places_hide_passwords(
    lab: Lab, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = lab.sweep("s")
    show_places(lab, folder, [], mlflow=False)
    assert capsys.readouterr().err == f"records: {lab.root / 'runs'}\n"
    folder.figures.mkdir(parents=True)
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "postgresql://me:secret@host/mlflow")
    show_places(lab, folder, [], mlflow=True)
    said = capsys.readouterr().err
    assert f"figures: {folder.figures}" in said and "me:***@host" in said


def test_notices_go_to_stderr_uncut(capsys: pytest.CaptureFixture[str]) -> None:
    say(LONG)
    assert capsys.readouterr() == ("", f"{LONG}\n")
    assert metrics_line({"a": 0.123456789, "fd[x]@100": 33.6801}) == "a 0.1235, fd[x]@100 33.7"
