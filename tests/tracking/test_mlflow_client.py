"""A store that cannot be used is one line that says what to do, and starters do not collide."""

from __future__ import annotations

import contextlib
import sqlite3
from pathlib import Path

import pytest

from tests.tracking.conftest import Store, Sweeps
from tread_lab.records.lab import Lab
from tread_lab.specs import UserError


def test_a_file_of_a_killed_starter_goes_and_one_that_is_made_again_is_another_store(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from tread_lab.tracking import mlflow_client

    def client(tracking_uri: str) -> str:
        if "timeout" not in tracking_uri:
            Path(tracking_uri.removeprefix("sqlite:///")).write_text("made")
        return tracking_uri

    monkeypatch.setattr(mlflow_client, "MlflowClient", client)
    path = tmp_path / "mlflow.db"
    for name in (".mlflow.db.12ab", ".mlflow.db.lock"):
        (tmp_path / name).touch()
    uri = f"sqlite:///{path}"
    opened = [mlflow_client.open_client(uri) for _ in range(2)]
    assert {p.name for p in tmp_path.iterdir()} == {"mlflow.db", ".mlflow.db.lock"}
    assert path.read_text() == "made" and opened == [f"{uri}?timeout=61"] * 2
    path.rename(tmp_path / "former")  # so that its inode is not given again
    assert mlflow_client.open_client(f"{uri}?a=1") == f"{uri}?a=1&timeout=62"


def test_a_deleted_experiment_says_what_to_do(lab: Lab, sweeps: Sweeps, store: Store) -> None:
    sweeps.plan()
    sweeps.sync()
    store.rows("UPDATE experiments SET lifecycle_stage = 'deleted' WHERE name = 'tread-lab'")
    command = f"MLFLOW_TRACKING_URI={lab.mlflow_uri} mlflow experiments restore --experiment-id 1"
    with pytest.raises(UserError, match=f"`{command}`"):
        sweeps.sync()


def test_a_store_that_is_not_mlflows_is_refused_untouched(lab: Lab, sweeps: Sweeps) -> None:
    sweeps.plan()
    path = lab.root / "mlflow.db"
    with contextlib.closing(sqlite3.connect(path)) as database:
        database.execute("CREATE TABLE runs (name)")
    with pytest.raises(UserError, match="is another program's database, not MLflow's"):
        sweeps.sync()
    assert Store(path).rows("SELECT name FROM sqlite_master") == [("runs",)]
    assert {p.name for p in lab.root.iterdir()} == {"mlflow.db", "sweeps"}


def test_a_server_that_does_not_answer_is_one_line(
    lab: Lab, sweeps: Sweeps, capfd: pytest.CaptureFixture[str]
) -> None:
    from tread_lab.tracking.mlflow_tracker import MlflowTracker

    sweeps.complete()
    with pytest.raises(UserError) as caught:
        MlflowTracker(lab, "http://user:secret@127.0.0.1:9").sync("placement")
    message = str(caught.value)
    assert "no MLflow server answers" in message and "MLFLOW_TRACKING_URI" in message
    assert "secret" not in message and "\n" not in message
    assert caught.value.__cause__ is None
    assert capfd.readouterr() == ("", "")
