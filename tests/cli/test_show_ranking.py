"""The ranking on a terminal: best first, with intervals, and no value cut."""

from __future__ import annotations

from typing import Any

import pandas as pd
import pytest

from tests.four_sweeps import made_frame
from tread_lab.cli import show_ranking as ranking
from tread_lab.cli.show_ranking import show_places, show_ranking
from tread_lab.records.lab import Lab


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
