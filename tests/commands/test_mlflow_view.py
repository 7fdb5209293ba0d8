"""MLflow follows a sweep unless it is off; where it cannot, a line says so."""

from __future__ import annotations

import sys
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tread_lab.commands import mlflow_view
from tread_lab.commands.mlflow_view import live_sync, sync_if_possible, sync_now
from tread_lab.records.lab import Lab
from tread_lab.specs import UserError
from tread_lab.tracking.tracker import LiveSync, SyncReport


class Tracked:
    """A tracker that notes what it is asked for."""

    def __init__(self, *what: Any) -> None:
        self.what = what

    def sync(self, name: str) -> SyncReport:
        if name == "lost":
            raise UserError("no MLflow server answers")
        return SyncReport(f"{name} {self.what[1]}")


def test_a_sweep_is_followed_unless_mlflow_is_off(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mlflow_view, "_tracker", lambda lab: ("tracker", lab.root))
    assert isinstance(live_sync(Lab(tmp_path), "s", off=True), nullcontext)
    live = live_sync(Lab(tmp_path), "s")
    assert isinstance(live, LiveSync) and live._sweep == "s"
    assert live._build() == ("tracker", tmp_path)  # type: ignore[comparison-overlap]


def test_a_sync_that_fails_is_a_line_or_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    lab = Lab(tmp_path)
    door: Any = SimpleNamespace(MlflowTracker=Tracked)  # MLflow takes seconds to import
    monkeypatch.setitem(sys.modules, "tread_lab.tracking.mlflow_tracker", door)
    assert sync_now(lab, "s") == SyncReport(f"s {lab.mlflow_uri}")
    sync_if_possible(lab, "s")
    assert capsys.readouterr() == ("", "")
    sync_if_possible(lab, "lost")
    assert capsys.readouterr().err == (
        "no MLflow server answers; the records are complete, `tread-lab sync lost` shows them"
        " later\n"
    )
    with pytest.raises(UserError, match="no MLflow server answers"):
        sync_now(lab, "lost")
