"""The ranking on a terminal: best first, with intervals, and no value cut."""

from __future__ import annotations

import pytest

from tread_lab.cli.show_ranking import show_places
from tread_lab.records.lab import Lab


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
