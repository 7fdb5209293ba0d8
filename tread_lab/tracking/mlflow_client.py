"""Opens an MLflow store; the only door to MLflow, whose settings must stand before its import."""

from __future__ import annotations

import contextlib
import logging
import os
import shlex
from collections.abc import Iterator
from pathlib import Path

# MLflow reads its settings while it is imported, so they stand before it.
# ruff: noqa: E402
for _name, _value in {
    "MLFLOW_DISABLE_TELEMETRY": "true",  # nothing is sent but to the store
    "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "1",  # a sync is repeated anyway
    "MLFLOW_HTTP_REQUEST_TIMEOUT": "20",
    "MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT": "true",
}.items():
    os.environ.setdefault(_name, _value)

from alembic.util import CommandError
from mlflow import MlflowClient
from mlflow.entities import Experiment, Metric, Param, Run, RunTag
from mlflow.exceptions import MlflowException
from mlflow.store.artifact.artifact_repo import ArtifactRepository
from mlflow.store.artifact.artifact_repository_registry import get_artifact_repository
from sqlalchemy.exc import SQLAlchemyError

from tread_lab.records.durable import replacing
from tread_lab.specs.errors import UserError
from tread_lab.tracking.store import explained, shown, sqlite_path

__all__ = [
    "Experiment",
    "Metric",
    "MlflowClient",
    "MlflowException",
    "Param",
    "Run",
    "RunTag",
    "artifacts_of",
    "in_one_line",
    "open_client",
    "open_experiment",
    "writers",
]

WRITERS = 8  # MLflow's client keeps ten connections
EXPERIMENT_TAGS = {"mlflow.experimentKind": "custom_model_development"}  # which pages open

for _name in ("mlflow.store.db.utils", "alembic"):
    logging.getLogger(_name).setLevel(logging.WARNING)

_OPENED: dict[Path, tuple[int, int]] = {}  # SQLite file -> (inode, how often it was opened anew)


def open_client(uri: str) -> MlflowClient:
    """Return a client of the store; a SQLite file that is absent is made, whole or not at all."""
    path = sqlite_path(uri)
    if path is None:
        return MlflowClient(tracking_uri=uri)
    if not path.exists() or path.stat().st_size == 0:
        for left in path.parent.glob(f".{path.name}.*"):  # by a starter that was killed
            if left.suffix != ".lock":
                left.unlink()
        with replacing(path) as temporary:
            MlflowClient(tracking_uri=f"sqlite:///{temporary}")
    # MLflow keeps one connection per URI, even to a file that was deleted and made again:
    # another timeout is another URI.
    inode, opened = _OPENED.get(path, (0, 0))
    if inode != path.stat().st_ino:
        inode, opened = path.stat().st_ino, opened + 1
        _OPENED[path] = (inode, opened)
    return MlflowClient(tracking_uri=f"{uri}{'&' if '?' in uri else '?'}timeout={60 + opened}")


def open_experiment(client: MlflowClient, uri: str, name: str) -> Experiment:
    """Return the experiment `name` of the store `uri`, made if it is absent.

    Beside a SQLite store lie its artifacts; a server has its own place for them.

    Raises:
        UserError: the experiment is deleted.
    """
    store = sqlite_path(uri)
    artifacts = (store.parent / "mlartifacts").as_uri() if store else None
    found = client.get_experiment_by_name(name)
    if found is None:
        try:
            client.create_experiment(name, artifact_location=artifacts, tags=EXPERIMENT_TAGS)
        except MlflowException as error:
            if error.error_code != "RESOURCE_ALREADY_EXISTS":
                raise
        found = client.get_experiment_by_name(name)
        assert found is not None
    if found.lifecycle_stage == "deleted":
        raise UserError(
            f"experiment {name!r} is deleted in this MLflow store;"
            f" `MLFLOW_TRACKING_URI={shlex.quote(shown(uri))} mlflow experiments restore"
            f" --experiment-id {found.experiment_id}`"
        )
    return found


def artifacts_of(client: MlflowClient, run: Run) -> ArtifactRepository:
    """Return where the artifacts of a run lie; the client itself would ask for the run again."""
    return get_artifact_repository(run.info.artifact_uri, tracking_uri=client.tracking_uri)


def writers(uri: str) -> int:
    """Return how many runs are written at once: a SQLite file has one writer."""
    return 1 if sqlite_path(uri) else WRITERS


@contextlib.contextmanager
def in_one_line(uri: str) -> Iterator[None]:
    """Turn whatever MLflow raises into a `UserError` of one line."""
    try:
        yield
    except UserError:
        raise
    except (MlflowException, SQLAlchemyError, CommandError, OSError, ImportError) as error:
        raise explained(uri, error) from None
