"""Opens an MLflow store; the only door to MLflow, whose settings must stand before its import."""

from __future__ import annotations

import contextlib
import logging
import os
from collections.abc import Iterator

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
from sqlalchemy.exc import SQLAlchemyError

from tread_lab.config.errors import UserError, first_line
from tread_lab.records.durable import replacing
from tread_lab.tracking.store import shown, sqlite_path

__all__ = ["Experiment", "Metric", "MlflowClient", "Param", "Run", "RunTag"]

PAGE = 1000  # MLflow's limit for one call

for _name in ("mlflow.store.db.utils", "alembic"):
    logging.getLogger(_name).setLevel(logging.WARNING)


def open_client(uri: str) -> MlflowClient:
    """Return a client of the store; a SQLite file that is absent is made, whole or not at all."""
    path = sqlite_path(uri)
    if path is None:
        return MlflowClient(tracking_uri=uri)
    if not path.exists():
        with replacing(path) as temporary:
            MlflowClient(tracking_uri=f"sqlite:///{temporary}")
    return MlflowClient(tracking_uri=f"{uri}{'&' if '?' in uri else '?'}timeout=60")


def open_experiment(client: MlflowClient, uri: str, name: str) -> Experiment:
    """Return the experiment of a sweep, made if it is absent, restored if it was deleted.

    Beside a SQLite store lie its artifacts; a server has its own place for them.
    """
    store = sqlite_path(uri)
    if client.get_experiment_by_name(name) is None:
        place = (store.parent / "mlartifacts").as_uri() if store else None
        kind = {"mlflow.experimentKind": "custom_model_development"}  # which pages open
        client.create_experiment(name, artifact_location=place, tags=kind)
    found = client.get_experiment_by_name(name)
    assert found is not None
    if found.lifecycle_stage == "deleted":
        client.restore_experiment(found.experiment_id)
    return found


def runs_of(client: MlflowClient, experiment: Experiment, condition: str) -> Iterator[Run]:
    """Yield the runs of an experiment that fulfil a condition, the oldest first."""
    token: str | None = None
    while token is None or token:
        page = client.search_runs(
            [experiment.experiment_id],
            condition,
            max_results=PAGE,
            order_by=["start_time ASC"],
            page_token=token,
        )
        yield from page
        token = page.token or ""


@contextlib.contextmanager
def in_one_line(uri: str) -> Iterator[None]:
    """Turn whatever MLflow raises into a `UserError` of one line."""
    try:
        yield
    except UserError:
        raise
    except (MlflowException, SQLAlchemyError, CommandError, OSError, ImportError) as error:
        line = shown(first_line(error))
        if "API request to http" in line:
            line = "no MLflow server answers"
        again = "sync again later, or set MLFLOW_TRACKING_URI to another store"
        raise UserError(f"MLflow store {shown(uri)}: {line[:200]}; {again}") from None
