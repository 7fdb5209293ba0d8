"""MLflow as a view of the records: a run for each cell and seed of a sweep; replays add nothing.

The only door to MLflow, which reads its settings while it is imported.
"""

from __future__ import annotations

import base64
import contextlib
import json
import logging
import os
import tempfile
import uuid
import zlib
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

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
from tread_lab.config.labels import plain_markdown
from tread_lab.config.units import counts_text
from tread_lab.records.caveats import mixtures
from tread_lab.records.durable import digest, replacing
from tread_lab.records.lab import Lab
from tread_lab.records.metric_names import (
    GAP_HELDOUT,
    TRAIN_FLOPS,
    TRAIN_IMAGES_PER_S,
    TRAIN_LOSS,
    metric_kind,
    metric_label,
    mlflow_name,
)
from tread_lab.records.run_state import RunState
from tread_lab.results import own_metrics, ranking_caption, ranking_key
from tread_lab.results.answer import answer
from tread_lab.results.ranking import formatted, ranking, to_markdown
from tread_lab.tracking.shown_run import ShownRun, ShownSweep
from tread_lab.tracking.store import check_store, identity, one_writer, shown, sqlite_path

for _name in ("mlflow.store.db.utils", "alembic"):
    logging.getLogger(_name).setLevel(logging.WARNING)

TAG = "mlflow.sharedViewState."  # as MLflow 3.17 keeps views; another version passes over them
COMPARE = "Compare the cells"  # by which a sync tells its own note from a user's
SHOWN = 12  # rows of the ranking
NOTE_LENGTH = 4_500  # characters
MOST_DRAWN = 200  # trials that MLflow's page draws at once; of more it shows the best
RESULT, SETTINGS, TRAINING, PICTURES = "Cells", "Settings", "During training", "Pictures"
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

    A sweep is an experiment with a note and a comparison; each started trial is a run, found by its
    tags. User-written notes, tags and values are kept.
    """

    def __init__(self, lab: Lab, uri: str) -> None:
        self._lab, self._uri = lab, uri
        self._logged: Counter[str] = Counter()  # values of the log that this process has sent

    def sync(self, name: str) -> Counter[str]:
        """Make the store equal to the records of a sweep, without duplicates.

        Returns:
            Numbers of runs `created`, `updated`, `removed` and `unchanged`.

        Raises:
            UserError: an unknown sweep, not an MLflow store, or no answer.
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
    """Return a client of the store; a missing SQLite file is created atomically."""
    path = sqlite_path(uri)
    if path is None:
        return MlflowClient(tracking_uri=uri)
    if not path.exists():
        with replacing(path) as temporary:
            MlflowClient(tracking_uri=f"sqlite:///{temporary}")
    return MlflowClient(tracking_uri=f"{uri}{'&' if '?' in uri else '?'}timeout=60")


def open_experiment(client: MlflowClient, uri: str, name: str) -> Experiment:
    """Return the experiment of a sweep, created or restored if necessary.

    Artifacts are beside a SQLite store; a server has its own location.
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
    """Yield the runs of an experiment that match a filter, the oldest first."""
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
    """Convert MLflow errors to a one-line `UserError`."""
    try:
        yield
    except UserError:
        raise
    except (MlflowException, SQLAlchemyError, CommandError, OSError, ImportError) as error:
        line = shown(first_line(error))
        if "API request to http" in line:
            line = "no MLflow server answers"
        again = "Try `tread-lab sync` later, or another store in MLFLOW_TRACKING_URI."
        raise UserError(f"MLflow store {shown(uri)}: {line[:200]}. {again}") from None


def addresses(uri: str) -> dict[str, str]:
    """Return the address of every comparison in a store by the name of its sweep.

    Raises:
        UserError: not an MLflow store, or no answer.
    """
    check_store(uri)
    with in_one_line(uri):
        found = open_client(uri).search_experiments(order_by=["last_update_time DESC"])
        own = (one for one in found if TAG + view_key(one.name) in one.tags)
        return {one.name: address(one.name, one.experiment_id) for one in own}


def view_key(name: str) -> str:
    """Return the key of a sweep's view in links."""
    return uuid.uuid5(uuid.NAMESPACE_URL, f"tread-lab {name}").hex[:16]


def address(name: str, experiment: str) -> str:
    """Return where MLflow's pages compare the cells of a sweep."""
    mode = "compareRunsMode=CHART&workflowType=machine_learning"
    return f"#/experiments/{experiment}/runs?viewStateShareKey={view_key(name)}&{mode}"


def note(shown: ShownSweep, experiment: str) -> str:
    """Return the note of a sweep as Markdown: question, answer, link, and the best cells.

    The answer is included once all runs have ended.
    """
    plan, frame, found = shown.plan, shown.frame, ""
    if all(RunState(state).ended for state in frame["state"]):
        found = answer(shown.lab, frame).text
    states = counts_text(Counter(map(str, frame["state"])))
    link = f"[{COMPARE}]({address(plan.name, experiment)})"
    parts = [f"**{plain_markdown(plan.question or plan.name)}**", plain_markdown(found)]
    parts += [f"{link}; {states}", *mixtures(shown.lab, dict.fromkeys(frame["run"]))]
    if key := ranking_key(frame):
        numbers = ranking(frame, key)
        caption = ranking_caption(key, plan.comparison)
        rest = f"; {len(numbers) - SHOWN} more cells" * (len(numbers) > SHOWN)
        parts += [f"{caption}{rest}:", to_markdown(formatted(numbers.head(SHOWN), key))]
    return "\n\n".join(filter(None, parts))[:NOTE_LENGTH]


def view(shown: ShownSweep, condition: str) -> str:
    """Return the tag value that opens the comparison.

    Bars and curves show cells, averaged over seeds, without contours, which would interpolate over
    missing cells.

    Args:
        condition: filter for the runs of the sweep.
    """
    frame = shown.frame
    names = dict.fromkeys([ranking_key(frame) or GAP_HELDOUT, GAP_HELDOUT, *own_metrics(frame)])
    quality = [name for name in names if name in shown.metrics and ":" not in name]
    heads = [name for name in quality if metric_kind(name).nature == "quality"]
    own = [mlflow_name(name) for name in heads]
    axes = [mlflow_name(axis) for axis in frame.attrs["axes"]]
    drawn = [*heads, *({TRAIN_FLOPS} & {*shown.metrics})]
    charts = [_chart("BAR", RESULT, _title(name), metricKey=mlflow_name(name)) for name in drawn]
    if axes and own:
        both = {"selectedParams": axes, "selectedMetrics": own[:1], "showAllRuns": True}
        charts.append(_chart("PARALLEL", SETTINGS, f"{', '.join(axes)} and {own[0]}", **both))
    for name in (TRAIN_LOSS, TRAIN_IMAGES_PER_S):
        charts.append(_chart("LINE", TRAINING, name, metricKey=name, **LINE))
    pictures = [picture for run in shown.runs[:1] for picture in run.pictures()]
    if keys := [*dict.fromkeys(picture.key for picture in pictures)]:
        end = max(picture.step for picture in pictures)  # a row of the grid for each run
        charts.append(_chart("IMAGE", PICTURES, ", ".join(keys), imageKeys=keys, step=end))
    params = dict.fromkeys(["route", *axes, "seed"])
    order = f"metrics.`{own[0]}`" if own else "attributes.start_time"
    state = {
        "searchFilter": condition,
        "orderByKey": order,
        "orderByAsc": not own or metric_kind(heads[0]).sign > 0,
        "startTime": "ALL",
        "lifecycleFilter": "Active",
        "datasetsFilter": [],
        "modelVersionFilter": "All Runs",
        "selectedColumns": [
            *(f"params.`{name}`" for name in params),
            *(f"metrics.`{name}`" for name in own),
            "tags.`state`",
        ],
        "columnOrder": [],
        "columnWidths": {},
        "runsHiddenMode": "SHOW_ALL" if len(frame) <= MOST_DRAWN else "FIRST_20_RUNS",
        "compareRunCharts": charts,
        "compareRunSections": [
            {"uuid": name, "name": name, "display": True, "isReordered": True, **SIZES[name]}
            for name in dict.fromkeys(chart["metricSectionId"] for chart in charts)
        ],
        "viewMaximized": False,
        "runListHidden": False,
        "isAccordionReordered": True,
        "useGroupedValuesInCharts": True,
        "hideEmptyCharts": True,
        "groupBy": None,
        "groupsExpanded": {},
    }
    packed = base64.b64encode(zlib.compress(json.dumps(state).encode())).decode()
    times = {"createdAt": 0, "updatedAt": 0}
    return json.dumps({"name": shown.plan.name, **times, "state": f"deflate;{packed}"})


SIZES = {  # a tall card has room for the name of each bar in its legend
    RESULT: {"columns": 2, "cardHeight": 700},
    SETTINGS: {"columns": 1, "cardHeight": 500},
    TRAINING: {"columns": 2, "cardHeight": 500},
    PICTURES: {"columns": 1, "cardHeight": 640},
}
LINE = {
    "lineSmoothness": 0,
    "xAxisScaleType": "linear",
    "scaleType": "linear",
    "range": {},
    "xAxisKey": "step",
    "selectedXAxisMetricKey": "",
    "yAxisKey": "metric",
    "yAxisExpressions": [],
    "ignoreOutliers": False,
    "useGlobalXaxisKey": True,
    "useGlobalLineSmoothing": True,
}


def _title(name: str) -> str:
    """Return `gap/heldout: Δ held-out loss, lower is better`: bars have no axis label."""
    label, better = metric_label(name), metric_kind(name).better
    return f"{name}: {label}" + (f", {better} is better" if better else "")


def _chart(kind: str, section: str, title: str, **options: Any) -> dict[str, Any]:
    return {
        "uuid": uuid.uuid5(uuid.NAMESPACE_URL, f"{kind} {title}").hex[:16],
        "type": kind,
        "runsCountToCompare": 100,
        "metricSectionId": section,
        "deleted": False,
        "isGenerated": False,
        "displayName": title,
        **options,
    }
