"""MLflow follows a sweep unless it is off; where it cannot, a line says so."""

from __future__ import annotations

import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tread_lab.commands import mlflow_view
from tread_lab.commands.mlflow_view import live_sync, sync_if_possible, sync_now
from tread_lab.records.lab import Lab
from tread_lab.specs import UserError
from tread_lab.tracking.tracker import SyncReport


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
    asked = list[tuple[str, str, bool]]()

    class Followed(Tracked):
        def sync(self, name: str, *, closing: bool = False) -> SyncReport:
            asked.append((self.what[0], name, closing))
            return SyncReport(name)

    monkeypatch.setattr(mlflow_view, "_tracker", lambda lab, kind: Followed(kind))
    for trackers in ((), ("mlflow",), ("tensorboard", "wandb")):
        with live_sync(Lab(tmp_path), "s", trackers):
            pass
    assert [kind for kind, *_ in asked] == ["mlflow", "wandb", "tensorboard"]
    assert {what for _, *what in map(list, asked) for what in [tuple(what)]} == {("s", True)}


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
