"""MLflow as a view of the records: a run for each cell and seed of a sweep; replays add nothing.

The only door to MLflow, which reads its settings while it is imported.
"""

from __future__ import annotations

import contextlib
import logging
import os
import tempfile
import uuid
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

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
from tread_lab.records.durable import digest, replacing
from tread_lab.records.lab import Lab
from tread_lab.records.metric_names import mlflow_name
from tread_lab.records.run_state import RunState
from tread_lab.tracking.comparison import COMPARE, TAG, address, note, view, view_key
from tread_lab.tracking.shown_run import ShownRun, ShownSweep
from tread_lab.tracking.store import check_store, identity, one_writer, shown, sqlite_path

for _name in ("mlflow.store.db.utils", "alembic"):
    logging.getLogger(_name).setLevel(logging.WARNING)

PAGE = 1000  # MLflow's limit for one call
NOTE = "mlflow.note.content"
KEY, SENT, LAB = "tread_lab.trial", "tread_lab.sent", "tread_lab.lab"
LONGEST = 240  # characters of a name, a setting or a tag that every store takes
STATUS = {
    RunState.RUNNING: "RUNNING",
    RunState.INTERRUPTED: "KILLED",
    RunState.COMPLETED: "FINISHED",
    RunState.STOPPED: "KILLED",
    RunState.FAILED: "FAILED",
    RunState.DIVERGED: "FAILED",
}


class MlflowTracker:
    """Makes an MLflow store equal to the records of a lab, sweep by sweep.

    A sweep is an experiment with a note and a comparison; each trial that has begun is a run, found
    by its tags. What people wrote into runs is left alone, and so is a note that they wrote.
    """

    def __init__(self, lab: Lab, uri: str) -> None:
        self._lab, self._uri = lab, uri
        self._logged: Counter[str] = Counter()  # values of the log that this process has sent

    def sync(self, name: str) -> Counter[str]:
        """Make the store equal to the records of a sweep; nothing is duplicated, whatever happened.

        Returns:
            How many runs were `created`, `updated`, `removed` and found `unchanged`.

        Raises:
            UserError: no such sweep, or a store that is not MLflow's or does not answer.
        """
        sweep = ShownSweep(self._lab, self._lab.known_sweep(name).plan())
        check_store(self._uri)
        with one_writer(self._lab), in_one_line(self._uri):
            client = open_client(self._uri)
            experiment = open_experiment(client, self._uri, name)
            condition = f"tags.`{LAB}` = '{identity(self._lab)}'"
            found = {run.data.tags[KEY]: run for run in runs_of(client, experiment, condition)}
            counts: Counter[str] = Counter()
            for one in sweep.runs:
                stored = found.pop(one.key, None)
                counts[self._send(client, experiment.experiment_id, one, stored)] += 1
            for left in found.values():
                client.delete_run(left.info.run_id)
                counts["removed"] += 1
            tags = {TAG + view_key(name): view(sweep, condition)}
            if COMPARE in experiment.tags.get(NOTE, COMPARE):
                tags[NOTE] = note(sweep, experiment.experiment_id)
            for key, text in tags.items():
                if experiment.tags.get(key) != text:
                    client.set_experiment_tag(experiment.experiment_id, key, text)
        return counts

    def _send(
        self, client: MlflowClient, experiment: str, one: ShownRun, stored: Run | None
    ) -> str:
        """Bring one run up to date; return what was done."""
        params = {mlflow_name(name): str(value) for name, value in one.settings.items()}
        tags, metrics, during = one.tags, one.metrics, one.during
        log = one.folder.log_path
        size = log.stat().st_size if log.exists() else 0
        mark = digest(
            repr((one.state, one.ended, params, tags, metrics, during, size, one.measured))
        )
        if stored is not None and stored.data.tags.get(SENT) == mark:
            return "unchanged"
        run = stored or client.create_run(
            experiment,
            start_time=one.created,
            tags={KEY: one.key, LAB: identity(one.sweep.lab)},
            run_name=one.name[:LONGEST],
        )
        run_id, have = run.info.run_id, run.data
        curves = list(one.curves())
        values = [Metric(*value) for value in curves[self._logged[run_id] :]]
        for step, own in during.items():
            values += [Metric(mlflow_name(n), x, one.created, step) for n, x in own.items()]
        for name, value in metrics.items():
            if have.metrics.get(key := mlflow_name(name)) != value:
                values.append(Metric(key, value, one.measured, one.step))
        for start in range(0, len(values), PAGE):
            client.log_batch(run_id, values[start : start + PAGE])
        self._logged[run_id] = len(curves)
        pictures = self._upload(client, run_id, one)
        ended = one.ended
        if ended is None and run.info.status != "RUNNING":
            client.update_run(run_id, status="RUNNING")
        elif ended is not None:
            client.set_terminated(run_id, status=STATUS[one.state], end_time=ended)
        source = {
            "mlflow.source.name": f"tread-lab sweep {one.sweep.plan.name}",
            "mlflow.source.type": "LOCAL",
            "mlflow.source.git.commit": tags["code"].removesuffix("-dirty"),
            "mlflow.loggedImages": str(pictures > 0),
        }
        new = [Param(n, text[:LONGEST]) for n, text in params.items() if n not in have.params]
        said = {n: text[:LONGEST] for n, text in tags.items() if text or n in have.tags}
        texts = {**said, **source, SENT: mark}
        client.log_batch(run_id, params=new, tags=[RunTag(n, text) for n, text in texts.items()])
        return "created" if stored is None else "updated"

    def _upload(self, client: MlflowClient, run_id: str, one: ShownRun) -> int:
        """Send the spec and the pictures of a run; return how many pictures it has.

        Those at the root are what MLflow compares; those in `images` are what its image grid shows,
        under names that are equal each time, where MLflow's own `log_image` draws a random one.
        """
        contents = {"spec.yaml": (one.folder.path / "spec.yaml").read_bytes()}
        pictures = list(one.pictures())
        for picture in pictures:
            stem = picture.key if picture.step == one.step else f"{picture.key}_{picture.step}"
            unique = uuid.uuid5(uuid.NAMESPACE_URL, f"{one.key}/{stem}")
            place = f"{picture.key}+step+{picture.step}+timestamp+{one.created}+{unique}"
            contents |= {f"{stem}.png": picture.png, f"images/{place}.png": picture.png}
            contents[f"images/{place}+compressed.webp"] = picture.thumbnail
        with tempfile.TemporaryDirectory() as folder:
            Path(folder, "images").mkdir()
            for name, content in contents.items():
                Path(folder, name).write_bytes(content)
            client.log_artifacts(run_id, folder)
        return len(pictures)


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


def addresses(uri: str) -> dict[str, str]:
    """Return the address of every comparison in a store by the name of its sweep.

    Raises:
        UserError: the store is not MLflow's or does not answer.
    """
    check_store(uri)
    with in_one_line(uri):
        found = open_client(uri).search_experiments(order_by=["last_update_time DESC"])
        own = (one for one in found if TAG + view_key(one.name) in one.tags)
        return {one.name: address(one.name, one.experiment_id) for one in own}
