"""Each tracker follows a sweep that is asked to; where one cannot, a line says so."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest

from tread_lab.commands import mlflow_view
from tread_lab.commands.mlflow_view import live_sync, sync_if_possible, sync_now
from tread_lab.records.lab import Lab
from tread_lab.specs import UserError
from tread_lab.tracking.tracker import SyncReport


class Tracked:
    """A tracker that notes what it is asked for."""

    def __init__(self, kind: str, asked: list[tuple[str, str]]) -> None:
        self.kind, self.asked = kind, asked

    def sync(self, name: str, *, closing: bool = False) -> SyncReport:
        if name == "lost":
            raise UserError("no MLflow server answers")
        self.asked.append((self.kind, name + closing * " at last"))
        return SyncReport(name)


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, str]]:
    """The trackers and what they were asked for, in order."""
    asked: list[tuple[str, str]] = []
    for kind in mlflow_view.TRACKERS:
        stand_in = SimpleNamespace(make=lambda lab, kind=kind: Tracked(kind, asked))
        monkeypatch.setitem(mlflow_view.TRACKERS, kind, stand_in)  # type: ignore[misc]
    return asked


def test_each_named_tracker_follows_a_sweep_to_its_end(
    tmp_path: Path, asked: list[tuple[str, str]]
) -> None:
    for trackers in ((), ("mlflow",), ("tensorboard", "wandb")):
        with live_sync(Lab(tmp_path), "s", trackers):
            pass
    assert asked == [(kind, "s at last") for kind in ("mlflow", "wandb", "tensorboard")]


def test_a_sync_that_fails_is_a_line_or_an_error(
    tmp_path: Path, asked: list[tuple[str, str]], capsys: pytest.CaptureFixture[str]
) -> None:
    lab = Lab(tmp_path)
    assert sync_now(lab, "s", "wandb") == SyncReport("s")
    sync_if_possible(lab, "s")
    assert asked == [("wandb", "s"), ("mlflow", "s")] and capsys.readouterr() == ("", "")
    sync_if_possible(lab, "lost")
    sync_if_possible(lab, "lost", ["wandb"])
    records = "no MLflow server answers; the records are complete"
    assert capsys.readouterr().err == (
        f"{records}, `tread-lab sync lost` shows them later\n"
        f"{records}, `tread-lab sync lost --tracker wandb` shows them later\n"
    )
    with pytest.raises(UserError, match="no MLflow server answers"):
        sync_now(lab, "lost", "mlflow")
