"""A tracker follows a sweep; where it cannot, a line says so."""

from __future__ import annotations

from pathlib import Path

import pytest

from tread_lab.cli import mlflow_view
from tread_lab.cli.mlflow_view import sync_if_possible, tracked
from tread_lab.config import UserError
from tread_lab.records.lab import Lab


@pytest.mark.parametrize(("tracker", "synced"), [("mlflow", ["s"]), ("none", [])])
def test_mlflow_follows_a_sweep(
    tracker: str,
    synced: list[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    asked: list[str] = []

    class Tracked:
        def sync(self, name: str) -> None:
            if name == "lost":
                raise UserError("no MLflow server answers")
            asked.append(name)

    monkeypatch.setattr(mlflow_view, "mlflow_tracker", lambda lab: Tracked())
    with tracked(Lab(tmp_path), "s", tracker):
        pass
    assert asked == synced and capsys.readouterr() == ("", "")
    sync_if_possible(Lab(tmp_path), "lost")
    assert "tread-lab sync lost" in capsys.readouterr().err
