"""MLflow as a view of the records: one run per sweep, a child per trial, replays add nothing."""

from __future__ import annotations

import contextlib
import json
import logging
import math
import os
import tempfile
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from tread_lab.records.status import RunState

# MLflow reads its settings while it is imported, so they stand before it.
# ruff: noqa: E402
for _name, _value in {
    "MLFLOW_DISABLE_TELEMETRY": "true",  # nothing is sent but to the store
    "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "1",  # a sync is repeated anyway
    "MLFLOW_HTTP_REQUEST_TIMEOUT": "20",
    "MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT": "true",
}.items():
    os.environ.setdefault(_name, _value)

import pandas as pd
from alembic.util import CommandError
from mlflow import MlflowClient
from mlflow.entities import Experiment, Metric, Param, Run, RunTag
from mlflow.exceptions import MlflowException
from sqlalchemy.exc import SQLAlchemyError

from tread_lab.frames import Memory, own_metrics
from tread_lab.records.durable import replacing
from tread_lab.records.lab import Lab, SweepFolder
from tread_lab.records.plan import StoredPlan
from tread_lab.specs.errors import UserError
from tread_lab.tracking.artifacts import File
from tread_lab.tracking.projection import Number, Projection, View
from tread_lab.tracking.saved_views import AXES, SavedViews
from tread_lab.tracking.store import (
    EXPERIMENT,
    check_store,
    explained,
    identity,
    in_short,
    one_writer,
    sqlite_path,
)
from tread_lab.tracking.sweep_run import Parent, Ranking, written
from tread_lab.tracking.sync_tags import FACTS, NAME, SHARED, Authored, Sent, files_mark
from tread_lab.tracking.tracker import SyncReport
from tread_lab.tracking.trial_names import Trial, trials_of

_OWN_TAGS = ("sweep", "lab", "trial", "sent", "authored")
SWEEP, LAB, TRIAL, SENT, AUTHORED = (f"tread_lab.{name}" for name in _OWN_TAGS)
PARENT_RUN = "mlflow.parentRunId"
EXPERIMENT_TAGS = {"mlflow.experimentKind": "custom_model_development"}  # which pages open
BATCH = 1000  # MLflow's limit for one call

for _name in ("mlflow.store.db.utils", "alembic"):
    logging.getLogger(_name).setLevel(logging.WARNING)


class MlflowTracker:
    """Makes an MLflow store equal to the records of a lab, sweep by sweep.

    Every run carries what was sent of it as a tag, so an unchanged run costs nothing, a store that
    was emptied is filled again, and a sync that was cut off is taken up by the next one. Notes,
    names and tags that a person wrote stay; digests on the run say which ones are the sync's.
    """

    def __init__(self, lab: Lab, uri: str, *, experiment: str = EXPERIMENT) -> None:
        self._lab, self._uri, self._experiment = lab, uri, experiment
        self._memory: dict[str, Memory] = defaultdict(Memory)

    def sync(self, sweep_name: str, *, closing: bool = False) -> SyncReport:
        """Make the store equal to the records of a sweep; nothing is duplicated, whatever happened.

        Raises:
            UserError: no such sweep, or a store that is not MLflow's or does not answer.
        """
        sweep = self._lab.known_sweep(sweep_name)
        plan = sweep.plan()
        check_store(self._uri)
        with one_writer(self._lab, self._uri), _one_line(self._uri):
            client = _client(self._uri)
            experiment = _experiment(client, self._experiment, self._artifacts())
            memory = self._memory[json.dumps([sweep.name, *plan.planned])]
            projection = Projection(self._lab, plan, memory)
            return _SweepSync(client, experiment, self._lab, sweep, plan, projection).run(
                closing=closing
            )

    def _artifacts(self) -> str | None:
        """Beside a SQLite store lie its artifacts; a server has its own place for them."""
        path = sqlite_path(self._uri)
        return (path.parent / "mlartifacts").as_uri() if path else None


class _SweepSync:
    """One pass over one sweep."""

    def __init__(
        self,
        client: MlflowClient,
        experiment: Experiment,
        lab: Lab,
        sweep: SweepFolder,
        plan: StoredPlan,
        projection: Projection,
    ) -> None:
        self._client, self._experiment = client, experiment
        self._lab, self._sweep, self._plan = lab, sweep, plan
        self._owner = {SWEEP: sweep.name, LAB: identity(lab)}
        self._condition = " AND ".join(f"tags.`{k}` = '{v}'" for k, v in self._owner.items())
        self._projection = projection
        self._done: Counter[str] = Counter()
        self._problems: list[str] = []
        self._shown = 0  # trials
        self._ended = 0  # when the last of them ended, in milliseconds

    def run(self, *, closing: bool) -> SyncReport:
        trials = trials_of(self._sweep.name, self._plan)
        states = {trial.key: self._projection.state(trial) for trial in trials}
        driven = self._sweep.driven and not closing
        found = self._found()
        name = self._sweep.name
        parent = found.pop("", None) or self._create(name, written(self._sweep, self._plan), {})
        for trial in trials:
            if states[trial.key] is not RunState.PENDING:
                with self._noted(trial):
                    self._child(trial, states[trial.key], found.get(trial.key), parent.info.run_id)
                found.pop(trial.key, None)
        for run in found.values():
            self._remove(run)
        frame = self._projection.frame(trials)
        views = self._views(trials, frame)
        for key, value in views.tags().items():
            if self._experiment.tags.get(key) != value:
                self._client.set_experiment_tag(self._experiment.experiment_id, key, value)
        shown = Parent(
            sweep=self._sweep,
            plan=self._plan,
            states=list(states.values()),
            driven=driven,
            ranking=Ranking.of(frame),
            ended=self._ended,
            run_id=parent.info.run_id,
            link=views.link(self._experiment.experiment_id),
        )
        self._parent(parent, shown)
        return SyncReport(name, 1 + self._shown, **self._done, problems=tuple(self._problems))

    def _views(self, trials: Sequence[Trial], frame: pd.DataFrame) -> SavedViews:
        return SavedViews(
            sweep=self._sweep.name,
            condition=f"{self._condition} AND tags.`role` != 'sweep'",
            metrics=own_metrics(frame),
            varied={axis for axis in AXES if frame[axis].nunique() > 1},
            pictures=self._projection.pictures(),
            seed=min(trial.stored.seed for trial in trials),
            step=max(trial.stored.steps for trial in trials),
            trials=self._shown,
            written=written(self._sweep, self._plan),
        )

    def _found(self) -> dict[str, Run]:
        """The sweep's runs by trial, the parent under the empty key; surplus ones are removed."""
        found: dict[str, Run] = {}
        surplus: list[Run] = []
        token: str | None = None
        while token is None or token:
            page = self._client.search_runs(
                [self._experiment.experiment_id],
                self._condition,
                max_results=BATCH,
                order_by=["start_time ASC"],
                page_token=token,
            )
            for run in page:
                if found.setdefault(run.data.tags.get(TRIAL, ""), run) is not run:
                    surplus.append(run)
            token = page.token or ""
        for run in surplus:
            self._remove(run)
        return found

    def _child(self, trial: Trial, state: RunState, have: Run | None, parent_id: str) -> None:
        stamp = self._projection.stamp(trial, state)
        if have is not None and _up_to_date(have, parent_id, stamp):
            self._done["unchanged"] += 1
            self._note(trial, _own_tags(have), have.info.end_time)
            return
        view = self._projection.view(trial, state)
        own = {TRIAL: trial.key, PARENT_RUN: parent_id}
        name, typed = view.name, dict[str, str]()
        if have is not None and _contradicts(have, view):
            name, typed = _run_name(have, view.name), _typed(have, view)
            self._remove(have)
            have = None
        self._done["updated"] += have is not None
        run = have or self._create(name, view.started, own | typed)
        sent = Sent.parse(run.data.tags.get(SENT, ""))
        fresh = [number for n, number in view.logged.items() if n > sent.log]
        numbers = [*fresh, *view.during, *view.measured.values()]
        self._log(run, view.name, numbers, view.params, view.tags | own)
        files = self._upload(run, view.files, sent)
        self._set_status(run, view.status, view.ended)
        now = Sent(stamp, max(view.logged, default=-1), view.born, files)
        self._client.set_tag(run.info.run_id, SENT, str(now))
        self._note(trial, view.tags, view.ended)

    def _note(self, trial: Trial, tags: Mapping[str, str], ended: int | None) -> None:
        """Remember what the report and the sweep's own run say of a trial."""
        self._shown += 1
        self._ended = max(self._ended, ended or 0)
        if "problem" in tags:
            self._problems.append(f"{trial.key}: {tags['problem']}")

    def _parent(self, run: Run, parent: Parent) -> None:
        sent = Sent.parse(run.data.tags.get(SENT, ""))
        if sent.stamp == parent.stamp and run.info.status == parent.status:
            self._done["unchanged"] += 1
            return
        self._done["updated"] += SENT in run.data.tags
        self._log(run, self._sweep.name, [], {}, parent.tags())
        files = self._upload(run, parent.files(), sent)
        over = parent.status not in ("RUNNING", "SCHEDULED")
        self._set_status(run, parent.status, parent.ended if over else None)
        self._client.set_tag(run.info.run_id, SENT, str(Sent(parent.stamp, files=files)))

    def _create(self, name: str, started: int, tags: dict[str, str]) -> Run:
        self._done["created"] += 1
        return self._client.create_run(
            self._experiment.experiment_id,
            start_time=started,
            tags=self._owner | tags,
            run_name=name,
        )

    def _remove(self, run: Run) -> None:
        self._client.delete_run(run.info.run_id)
        self._done["removed"] += 1

    def _log(
        self,
        run: Run,
        name: str,
        numbers: Sequence[Number],
        params: Mapping[str, str],
        tags: Mapping[str, str],
    ) -> None:
        run_id, have, own = run.info.run_id, run.data, _own_tags(run, tags)
        if run.info.run_name != _run_name(run, name):
            self._client.update_run(run_id, name=name)
        for place in set(SHARED) & own.keys() - tags.keys():
            self._client.delete_tag(run_id, place)
        tags = {k: v for k, v in tags.items() if k not in have.tags or k in own}
        texts = {place: text for place, text in tags.items() if place in SHARED}
        texts |= {NAME: name} if _run_name(run, name) == name else {}
        tags |= {AUTHORED: str(Authored.of(texts))}
        new_params = [Param(k, v) for k, v in params.items() if k not in have.params]
        new_tags = [RunTag(k, v) for k, v in tags.items() if have.tags.get(k) != v]
        metrics = [Metric(n.key, n.value, n.time, n.step) for n in numbers]
        self._client.log_batch(run_id, metrics[:BATCH], new_params, new_tags)
        for start in range(BATCH, len(metrics), BATCH):
            self._client.log_batch(run_id, metrics[start : start + BATCH])
        self._done["values"] += len(numbers)

    def _upload(self, run: Run, files: Mapping[str, File], sent: Sent) -> str:
        """Send the artifacts if they are not those of the last time; returns their fingerprint."""
        mark = files_mark(files)
        if mark != sent.files:
            with tempfile.TemporaryDirectory() as folder:
                for place, source in files.items():
                    path = Path(folder) / place
                    path.parent.mkdir(parents=True, exist_ok=True)
                    if isinstance(source, Path):
                        path.symlink_to(source)
                    else:
                        path.write_bytes(source.encode() if isinstance(source, str) else source)
                self._client.log_artifacts(run.info.run_id, folder)
        return mark

    def _set_status(self, run: Run, status: str, ended: int | None) -> None:
        info = run.info
        if ended is None and status != info.status:
            self._client.update_run(info.run_id, status=status)
        if ended is not None and (status, ended) != (info.status, info.end_time):
            self._client.set_terminated(info.run_id, status=status, end_time=ended)

    @contextlib.contextmanager
    def _noted(self, trial: Trial) -> Iterator[None]:
        """A record that cannot be shown is a problem of that run, not of the others."""
        try:
            yield
        except UserError as error:
            self._problems.append(f"{trial.key}: {error}")
        except MlflowException as error:
            if error.error_code != "INVALID_PARAMETER_VALUE":
                raise
            self._problems.append(f"{trial.key}: {in_short(error)}")


def _up_to_date(have: Run, parent_id: str, stamp: str) -> bool:
    tags = have.data.tags
    return tags.get(PARENT_RUN) == parent_id and Sent.parse(tags.get(SENT, "")).stamp == stamp


def _run_name(have: Run, wanted: str) -> str:
    """Return the name that a run is to have: the one a person gave it, else `wanted`."""
    authored, name = Authored.parse(have.data.tags.get(AUTHORED)), str(have.info.run_name)
    return wanted if authored.is_ours(NAME, name, wanted) else name


def _own_tags(have: Run, wanted: Mapping[str, str] | None = None) -> dict[str, str]:
    """Return the tags of a run without what a person wrote where the sync writes too."""
    tags, wanted = have.data.tags, wanted or {}
    authored = Authored.parse(tags.get(AUTHORED))
    ours = {k for k in tags if k not in SHARED or authored.is_ours(k, tags[k], wanted.get(k))}
    return {k: tags[k] for k in ours}


def _typed(have: Run, view: View) -> dict[str, str]:
    """Return what a person wrote on a run that is made anew, with the digests that prove it."""
    tags, own = have.data.tags, _own_tags(have, view.tags)
    made = {*FACTS, *view.tags} - set(SHARED)
    typed = {
        name: text
        for name, text in tags.items()
        if name not in own or not (name in made or name in SHARED or _is_reserved(name))
    }
    return typed | {AUTHORED: tags.get(AUTHORED, "")}


def _is_reserved(name: str) -> bool:
    return name.startswith(("mlflow.", "tread_lab."))


def _contradicts(have: Run, view: View) -> bool:
    """Whether the store says something that cannot be taken back; then the run is made anew."""
    sent = Sent.parse(have.data.tags.get(SENT, ""))
    if any(have.data.params.get(name, value) != value for name, value in view.params.items()):
        return True
    if sent.log >= 0 and (sent.born != view.born or sent.log > max(view.logged, default=-1)):
        return True  # the record was replaced by another one
    curves, stored = {number.key for number in view.logged.values()}, have.data.metrics
    if stored.keys() - curves - view.measured.keys() - {number.key for number in view.during}:
        return True  # a number that the record no longer has, or that had another name
    return any(
        key not in curves and not _same(stored.get(key, number.value), number.value)
        for key, number in view.measured.items()
    )


def _same(a: float, b: float) -> bool:
    return a == b or (math.isnan(a) and math.isnan(b))


_OPENED: dict[Path, tuple[int, int]] = {}  # SQLite file -> (inode, how often it was opened anew)


def _client(uri: str) -> MlflowClient:
    """A client of the store; a SQLite file that is absent is made, whole or not at all."""
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


def _experiment(client: MlflowClient, name: str, artifacts: str | None) -> Experiment:
    """The experiment `name`, made if need be."""
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
        command = f"mlflow experiments restore --experiment-id {found.experiment_id}"
        raise UserError(f"experiment {name!r} is deleted in this MLflow store; `{command}`")
    place = found.artifact_location
    if artifacts is not None and place.endswith("/mlartifacts") and place != artifacts:
        raise UserError(
            f"this MLflow store keeps its artifacts in {place}, where the lab was before it moved;"
            " delete mlflow.db and sync again, everything in it is in the records"
        )
    return found


@contextlib.contextmanager
def _one_line(uri: str) -> Iterator[None]:
    """Whatever MLflow raises becomes one line for the user."""
    try:
        yield
    except UserError:
        raise
    except (MlflowException, SQLAlchemyError, CommandError, OSError, ImportError) as error:
        raise explained(uri, error) from None
