"""MLflow follows a sweep; where it cannot, a line says so."""

from __future__ import annotations

from pathlib import Path

import pytest

from tread_lab.commands import mlflow_view
from tread_lab.commands.mlflow_view import live_sync, sync_if_possible, sync_now
from tread_lab.records.lab import Lab
from tread_lab.specs import UserError
from tread_lab.tracking.live_sync import SyncReport


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The syncs that were asked for, in order."""
    asked: list[str] = []

    class Tracked:
        def sync(self, name: str, *, closing: bool = False) -> SyncReport:
            if name == "lost":
                raise UserError("no MLflow server answers")
            asked.append(name + closing * " at last")
            return SyncReport(name)

    monkeypatch.setattr(mlflow_view, "_tracker", lambda lab: Tracked())
    return asked


def test_mlflow_follows_a_sweep_to_its_end(tmp_path: Path, asked: list[str]) -> None:
    with live_sync(Lab(tmp_path), "s"):
        pass
    assert asked == ["s at last"]


def test_a_sync_that_fails_is_a_line_or_an_error(
    tmp_path: Path, asked: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    lab = Lab(tmp_path)
    assert sync_now(lab, "s") == SyncReport("s")
    sync_if_possible(lab, "s")
    assert asked == ["s", "s"] and capsys.readouterr() == ("", "")
    sync_if_possible(lab, "lost")
    assert "tread-lab sync lost" in capsys.readouterr().err
    with pytest.raises(UserError, match="no MLflow server answers"):
        sync_now(lab, "lost")
