"""MLflow as a view of the records: one run per sweep, a child per trial, replays add nothing."""

from __future__ import annotations

import contextlib
import tempfile
import threading
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pandas as pd

from tread_lab.frames import own_metrics, ranking_key
from tread_lab.records.lab import Lab
from tread_lab.records.plan import StoredPlan
from tread_lab.records.status import RunState
from tread_lab.records.sweep_folder import SweepFolder
from tread_lab.specs.errors import UserError
from tread_lab.tracking.artifacts import File
from tread_lab.tracking.live_sync import SyncReport
from tread_lab.tracking.mlflow_client import (
    Experiment,
    Metric,
    MlflowClient,
    MlflowException,
    Param,
    Run,
    RunTag,
    artifacts_of,
    in_one_line,
    open_client,
    open_experiment,
    writers,
)
from tread_lab.tracking.projection import Number, Projection, ShownTrial, trials_of
from tread_lab.tracking.saved_view import SavedView
from tread_lab.tracking.store import (
    EXPERIMENT,
    check_store,
    identity,
    in_short,
    one_writer,
)
from tread_lab.tracking.stored_run import (
    LAB,
    NOTE,
    PARENT_RUN,
    PASSING,
    SENT,
    SWEEP,
    TRIAL,
    Sent,
    contradicts,
    files_mark,
    is_up_to_date,
    users_tags,
)
from tread_lab.tracking.sweep_run import COMPARE, FOLDERS, Parent, Ranking, written

BATCH = 1000  # MLflow's limit for one call


class MlflowTracker:
    """Makes an MLflow store equal to the records of a lab, sweep by sweep.

    Every run carries what was sent of it as a tag, so an unchanged run costs nothing, a store that
    was emptied is filled again, and a sync that was cut off is taken up by the next one. A user's
    notes, names and tags are left alone.
    """

    def __init__(self, lab: Lab, uri: str, *, experiment: str = EXPERIMENT) -> None:
        self._lab, self._uri, self._experiment = lab, uri, experiment

    def sync(self, sweep_name: str, *, closing: bool = False) -> SyncReport:
        """Make the store equal to the records of a sweep; nothing is duplicated, whatever happened.

        Args:
            closing: the caller drives the sweep and is about to leave it, so what is not
                finished now is interrupted.

        Raises:
            UserError: no such sweep, or a store that is not MLflow's or does not answer.
        """
        sweep = self._lab.known_sweep(sweep_name)
        plan = sweep.plan()
        check_store(self._uri)
        with one_writer(self._lab, self._uri), in_one_line(self._uri):
            client = open_client(self._uri)
            experiment = open_experiment(client, self._uri, self._experiment)
            projection = Projection(self._lab, plan)
            owner = {SWEEP: sweep.name, LAB: identity(self._lab)}
            return _SweepSync(client, experiment, owner, sweep, plan, projection).run(
                closing=closing
            )


class _SweepSync:
    """One pass over one sweep."""

    def __init__(
        self,
        client: MlflowClient,
        experiment: Experiment,
        owner: Mapping[str, str],
        sweep: SweepFolder,
        plan: StoredPlan,
        projection: Projection,
    ) -> None:
        self._client, self._experiment = client, experiment
        self._owner, self._sweep, self._plan = owner, sweep, plan
        self._condition = " AND ".join(f"tags.`{k}` = '{v}'" for k, v in owner.items())
        self._projection = projection
        self._alone = threading.RLock()  # whoever reads records or counts
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
        begun = {key: state for key, state in states.items() if state is not RunState.PENDING}
        stored = {key: found.pop(key, None) for key in begun}

        def child(trial: ShownTrial) -> None:
            with self._noted(trial):
                self._child(trial, begun[trial.key], stored[trial.key], parent.info.run_id)

        with ThreadPoolExecutor(writers(self._client.tracking_uri)) as pool:
            work = pool.map(child, [trial for trial in trials if trial.key in begun])
            list(work)  # a failure cancels what has not begun
        for run in found.values():
            self._remove(run)
        frame = self._projection.frame
        view = self._view(frame)
        key, value = view.tag()
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
            link=view.link(self._experiment.experiment_id),
        )
        self._parent(parent, shown)
        return SyncReport(name, 1 + self._shown, **self._done, problems=tuple(self._problems))

    def _view(self, frame: pd.DataFrame) -> SavedView:
        return SavedView(
            sweep=self._sweep.name,
            condition=f"{self._condition} AND tags.`role` != 'sweep'",
            metrics=own_metrics(frame),
            ranked_by=ranking_key(frame),
            trials=self._shown,
            written=written(self._sweep, self._plan),
        )

    def _found(self) -> dict[str, Run]:
        """The sweep's runs by trial, the parent under the empty key."""
        found: dict[str, Run] = {}
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
                found.setdefault(run.data.tags.get(TRIAL, ""), run)
            token = page.token or ""
        return found

    def _child(self, trial: ShownTrial, state: RunState, have: Run | None, parent_id: str) -> None:
        with self._alone:
            stamp = self._projection.stamp(trial, state)
            if have is not None and is_up_to_date(have, parent_id, stamp):
                self._count("unchanged")
                self._note(trial, have.data.tags, have.info.end_time)
                return
            view = self._projection.view(trial, state)
        own = {TRIAL: trial.key, PARENT_RUN: parent_id}
        kept = dict[str, str]()
        if have is not None and contradicts(have, view):
            kept = users_tags(have)
            self._remove(have)
            have = None
        self._count("updated", have is not None)
        run = have or self._create(view.name, view.started, own | kept)
        sent = Sent.parse(run.data.tags.get(SENT, ""))
        fresh = [number for n, number in view.logged.items() if n > sent.log]
        numbers = [*fresh, *view.during, *view.measured.values()]
        files = self._upload(run, view.files, sent)
        self._set_status(run, view.status, view.ended)
        now = Sent(stamp, max(view.logged, default=-1), view.born, files)
        self._log(run, numbers, view.params, view.tags | own, now)
        with self._alone:
            self._note(trial, view.tags, view.ended)

    def _count(self, what: str, number: int = 1) -> None:
        with self._alone:
            self._done[what] += number

    def _note(self, trial: ShownTrial, tags: Mapping[str, str], ended: int | None) -> None:
        """Remember what the report and the sweep's own run say of a trial."""
        self._shown += 1
        self._ended = max(self._ended, ended or 0)
        if "problem" in tags:
            self._problems.append(f"{trial.key}: {tags['problem']}")

    def _parent(self, run: Run, parent: Parent) -> None:
        sent = Sent.parse(run.data.tags.get(SENT, ""))
        if sent.stamp == parent.stamp and run.info.status == parent.status:
            self._count("unchanged")
            return
        self._count("updated", SENT in run.data.tags)
        files = self._upload(run, parent.files(), sent, anew=FOLDERS)
        self._set_status(run, parent.status, parent.end)
        now, tags = Sent(parent.stamp, files=files), parent.tags()
        if COMPARE not in run.data.tags.get(NOTE, COMPARE):
            del tags[NOTE]
        self._log(run, [], {}, tags, now)

    def _create(self, name: str, started: int, tags: dict[str, str]) -> Run:
        self._count("created")
        return self._client.create_run(
            self._experiment.experiment_id,
            start_time=started,
            tags={**self._owner, **tags},
            run_name=name,
        )

    def _remove(self, run: Run) -> None:
        self._client.delete_run(run.info.run_id)
        self._count("removed")

    def _log(
        self,
        run: Run,
        numbers: Sequence[Number],
        params: Mapping[str, str],
        tags: Mapping[str, str],
        sent: Sent,
    ) -> None:
        """Send numbers, parameters and tags; MLflow writes the tags last, `sent` among them."""
        run_id, have = run.info.run_id, run.data
        for name in have.tags.keys() & set(PASSING) - tags.keys():
            self._client.delete_tag(run_id, name)
        tags = {**tags, SENT: str(sent)}
        new_params = [Param(k, v) for k, v in params.items() if k not in have.params]
        new_tags = [RunTag(k, v) for k, v in tags.items() if have.tags.get(k) != v]
        metrics = [Metric(n.key, n.value, n.time, n.step) for n in numbers]
        full = max(0, len(metrics) + len(new_params) + len(new_tags) - 1) // BATCH * BATCH
        for start in range(0, full, BATCH):
            self._client.log_batch(run_id, metrics[start : start + BATCH])
        self._client.log_batch(run_id, metrics[full:], new_params, new_tags)
        self._count("values", len(numbers))

    def _upload(
        self, run: Run, files: Mapping[str, File], sent: Sent, anew: Sequence[str] = ()
    ) -> str:
        """Send the artifacts if they are not those of the last time; returns their fingerprint.

        Args:
            anew: folders in which nothing of the last time stays.
        """
        mark = files_mark(files)
        if mark != sent.files:
            place = artifacts_of(self._client, run)
            for name in anew if sent.files else ():
                with contextlib.suppress(Exception):  # not every store can delete
                    place.delete_artifacts(name)
            with tempfile.TemporaryDirectory() as folder:
                for name, source in files.items():
                    path = Path(folder) / name
                    path.parent.mkdir(parents=True, exist_ok=True)
                    if isinstance(source, Path):
                        path.symlink_to(source)
                    else:
                        path.write_bytes(source.encode() if isinstance(source, str) else source)
                place.log_artifacts(folder)
        return mark

    def _set_status(self, run: Run, status: str, ended: int | None) -> None:
        info = run.info
        if ended is None and status != info.status:
            self._client.update_run(info.run_id, status=status)
        if ended is not None and (status, ended) != (info.status, info.end_time):
            self._client.set_terminated(info.run_id, status=status, end_time=ended)

    @contextlib.contextmanager
    def _noted(self, trial: ShownTrial) -> Iterator[None]:
        """A record that cannot be shown is a problem of that run, not of the others."""
        try:
            yield
        except UserError as error:
            self._problems.append(f"{trial.key}: {error}")
        except MlflowException as error:
            if error.error_code != "INVALID_PARAMETER_VALUE":
                raise
            self._problems.append(f"{trial.key}: {in_short(error)}")
