"""What a sync sends to MLflow and what it leaves, call by call."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pandas as pd
import pytest

from tests.four_sweeps import said, same_as_stored
from tests.tracking.conftest import Store, Sweeps
from tread_lab.records.lab import Lab
from tread_lab.records.status import RunState
from tread_lab.records.sweep_folder import SweepFolder
from tread_lab.specs import UserError
from tread_lab.tracking.mlflow_tracker import MlflowTracker, _SweepSync
from tread_lab.tracking.projection import Number, ShownTrial, View, trials_of
from tread_lab.tracking.tracker import SyncReport

STORED = Path(__file__).parent / "stored"


class Client:
    """MLflow's client, whose calls are noted; `stored` is what its search finds, page by page."""

    def __init__(self, *pages: list[Any]) -> None:
        self.pages, self.calls = list(pages) or [[]], list[Any]()
        self.tracking_uri = "sqlite:////store.db"  # of one writer, so calls have an order

    def search_runs(self, *args: Any, **options: Any) -> Any:
        self.calls.append(("search_runs", *args, options))
        token = str(len(self.calls)) if len(self.pages) > 1 else None

        class Page(list[Any]):
            pass

        page = Page(self.pages.pop(0))
        page.token = token  # type: ignore[attr-defined]
        return page

    def create_run(self, experiment: str, *, start_time: int, tags: Any, run_name: str) -> Any:
        self.calls.append(("create_run", experiment, start_time, tags, run_name))
        number = sum(call[0] == "create_run" for call in self.calls)
        return stored(f"new {number}", run_name, tags=tags)

    def log_batch(self, run: str, metrics: Any, params: Any = (), tags: Any = ()) -> None:
        numbers = [(m.key, m.value, m.timestamp, m.step) for m in metrics]
        pairs = [{x.key: x.value for x in found} for found in (params, tags)]
        self.calls.append(("log_batch", run, numbers, *pairs))

    def log_artifacts(self, run: str, folder: str) -> None:
        paths = [path for path in Path(folder).rglob("*") if path.is_file()]
        files = {str(path.relative_to(folder)): path.read_text() for path in paths}
        self.calls.append(("log_artifacts", run, files))

    def __getattr__(self, name: str) -> Callable[..., None]:
        return lambda *args, **options: self.calls.append((name, *args, *options.items()))

    def of(self, run: str) -> list[Any]:
        """The calls about a run, without its name."""
        return [(name, *rest) for name, first, *rest in self.calls if first == run]


@pytest.fixture(autouse=True)
def uploads(monkeypatch: pytest.MonkeyPatch) -> None:
    """Uploads are calls of the client that names the run."""

    def artifacts_of(client: Client, run: Any) -> Any:
        return SimpleNamespace(log_artifacts=partial(client.log_artifacts, run.info.run_id))

    monkeypatch.setattr("tread_lab.tracking.mlflow_tracker.artifacts_of", artifacts_of)


def stored(run_id: str, name: str, **facts: Any) -> Any:
    """A run as MLflow gives it."""
    data = {key: facts.pop(key, {}) for key in ("tags", "params", "metrics")}
    info = {"run_id": run_id, "run_name": name, "status": "RUNNING", "end_time": None, **facts}
    return SimpleNamespace(info=SimpleNamespace(**info), data=SimpleNamespace(**data))


VIEW = View(
    name="dense seed 0",
    status="FINISHED",
    started=1000,
    ended=5000,
    settings={"seed": 0, "route": "dense"},
    tags={"cell": "dense", "role": "baseline", "problem": "", "mlflow.note.content": "note"},
    born=2000,
    logged={n: Number("train/loss", 1 / (n + 1), 5 * n, 2000 + n) for n in range(3)},
    measured={"heldout/loss": Number("heldout/loss", 0.75, 10, 3000)},
    during=(Number("heldout/loss", 1.5, 5, 3000),),
    files={"deep/note.txt": "x", "raw": b"y"},
)
OWNER = {"tread_lab.sweep": "placement", "tread_lab.lab": "this lab"}
EXPERIMENT = SimpleNamespace(experiment_id="7", tags={})


def synced(
    sweeps: Sweeps,
    client: Client,
    views: Mapping[str, Any],
    *,
    closing: bool = False,
    experiment: Any = EXPERIMENT,
) -> SyncReport:
    """Sync a plan whose cells `dense` and `0->2 s=0.5` have these views; the others are pending."""
    (sweeps.lab.root).mkdir(exist_ok=True)
    (sweeps.lab.root / ".identity").write_text("this lab\n")
    sweeps.plan(routes=((0, 2),))
    sweep = sweeps.lab.sweep("placement")
    os.utime(sweep.plan_path, (9.0, 9.0))

    def shown(trial: ShownTrial, state: RunState) -> View:
        if isinstance(views[trial.label], Exception):
            raise views[trial.label]
        return views[trial.label]

    projection: Any = SimpleNamespace(
        state=lambda trial: RunState.COMPLETED if trial.label in views else RunState.PENDING,
        frame=frame(trials_of("placement", sweep.plan())),
        pictures=lambda: ["pictures/samples"],
        stamp=lambda trial, state: f"{trial.label} {state}".replace(" ", "_"),
        view=shown,
    )
    pass_ = _SweepSync(client, experiment, sweeps.lab, sweep, sweep.plan(), projection)
    return pass_.run(closing=closing)


def frame(trials: Sequence[ShownTrial]) -> pd.DataFrame:
    """A row for each trial, with the axes of its route and one metric."""
    return pd.DataFrame(
        {
            "run": [trial.stored.run for trial in trials],
            "cell": [trial.label for trial in trials],
            "state": "completed",
            "role": [trial.stored.role for trial in trials],
            "start": [None, 0.0][: len(trials)],
            "end": range(len(trials)),
            "length": range(len(trials)),
            "rate": 0.5,
        }
    )


SEARCHED = (
    "search_runs",
    ["7"],
    "tags.`tread_lab.sweep` = 'placement' AND tags.`tread_lab.lab` = 'this lab'",
)
TRIAL_OF_DENSE = "placement/baseline/864cdc61673f2d7d/"
SENT_DENSE = "stamp=dense_completed log=2 born=2000 files=6e46ad538088f0e4"
LOGGED = [
    ("train/loss", 1.0, 2000, 0),
    ("train/loss", 0.5, 2001, 5),
    ("train/loss", 1 / 3, 2002, 10),
]
MEASURED = [("heldout/loss", 1.5, 3000, 5), ("heldout/loss", 0.75, 3000, 10)]
DIGESTS = "problem=e3b0c44298fc1c14 mlflow.note.content=edb465624291e405 name=6adb6ec62caf831f"


def test_a_first_sync_makes_the_sweep_and_sends_all_of_a_trial(sweeps: Sweeps) -> None:
    client = Client()
    report = synced(sweeps, client, {"dense": VIEW})
    assert report == SyncReport(
        "placement", runs=2, created=2, values=5, problems=(f"{TRIAL_OF_DENSE}: ",)
    )
    own = {"tread_lab.trial": TRIAL_OF_DENSE, "mlflow.parentRunId": "new 1"}
    options = {"max_results": 1000, "order_by": ["start_time ASC"], "page_token": None}
    assert client.calls[:3] == [
        (*SEARCHED, options),
        ("create_run", "7", 9000, OWNER, "placement"),
        ("create_run", "7", 1000, OWNER | own, "dense seed 0"),
    ]
    assert client.of("new 2") == [
        ("log_artifacts", {"deep/note.txt": "x", "raw": "y"}),
        ("set_terminated", ("status", "FINISHED"), ("end_time", 5000)),
        (
            "log_batch",
            [*LOGGED, *MEASURED],
            {"seed": "0", "route": "dense"},
            {**VIEW.tags, "tread_lab.authored": DIGESTS, "tread_lab.sent": SENT_DENSE},
        ),
    ]
    files, ended, batch = client.of("new 1")
    assert batch[1:3] == ([], {}) and batch[3]["progress"] == "2 trials: 1 completed, 1 pending"
    assert list(files[1]) == ["plan.json"]
    assert ended == ("set_terminated", ("status", "KILLED"), ("end_time", 5000))
    sent = batch[3]["tread_lab.sent"]
    assert sent.endswith(" log=-1 born=0 files=" + sent.rpartition("=")[2])


def kept(run: str = "old", **facts: Any) -> Any:
    """The run of `dense` as an earlier sync left it under the sweep's run `parent`."""
    tags = {
        **OWNER, **VIEW.tags, "tread_lab.trial": TRIAL_OF_DENSE, "mlflow.parentRunId": "parent",
        "tread_lab.sent": SENT_DENSE, "tread_lab.authored": DIGESTS,
    }  # fmt: skip
    options = {"params": dict(VIEW.params), "status": "FINISHED", "end_time": 5000, **facts}
    return stored(run, "dense seed 0", tags=tags | options.pop("tags", {}), **options)


PARENT = stored("parent", "placement", tags=OWNER)


def test_what_was_sent_is_not_sent_again_but_counts(sweeps: Sweeps) -> None:
    client = Client([PARENT], [kept()])
    report = synced(sweeps, client, {"dense": VIEW})
    assert report == SyncReport("placement", runs=2, unchanged=1, problems=(f"{TRIAL_OF_DENSE}: ",))
    tokens = [call[-1]["page_token"] for call in client.calls if call[0] == "search_runs"]
    assert tokens == [None, "1"] and client.of("old") == []
    assert client.of("parent")[1] == ("set_terminated", ("status", "KILLED"), ("end_time", 5000))


def test_a_run_that_went_on_gets_what_is_new(sweeps: Sweeps) -> None:
    sent = "stamp=earlier log=1 born=2000 files=others"
    tags = {"tread_lab.sent": sent, "disturbed": "train/time", "paper": "figure 8"}
    old = kept(tags=tags, params={"seed": "0"}, status="RUNNING", end_time=None)
    client, view = Client([PARENT, old]), replace(VIEW, tags={"cell": "dense", "role": "other"})
    report = synced(sweeps, client, {"dense": view})
    assert report == SyncReport("placement", runs=2, updated=1, values=3)
    files, ended, *deleted, batch = client.of("old")
    assert files == ("log_artifacts", {"deep/note.txt": "x", "raw": "y"})
    assert {call[1] for call in deleted} == {"mlflow.note.content", "problem", "disturbed"}
    assert ended == ("set_terminated", ("status", "FINISHED"), ("end_time", 5000))
    assert batch == (
        "log_batch",
        [LOGGED[2], *MEASURED],
        {"route": "dense"},
        {
            "role": "other",
            "tread_lab.authored": "name=6adb6ec62caf831f",
            "tread_lab.sent": SENT_DENSE,
        },
    )


def test_a_run_whose_cell_has_another_label_is_named_anew(sweeps: Sweeps) -> None:
    client = Client(
        [PARENT, kept(tags={"tread_lab.sent": "stamp=earlier log=2 born=2000 files=x"})]
    )
    synced(sweeps, client, {"dense": replace(VIEW, name="dense lr=1 seed 0")})
    assert ("update_run", ("name", "dense lr=1 seed 0")) in client.of("old")
    authored = client.of("old")[-1][3]["tread_lab.authored"]
    assert authored.startswith(DIGESTS.partition("name=")[0]) and authored != DIGESTS


def test_numbers_beyond_one_call_are_sent_before_the_tag_that_says_so(sweeps: Sweeps) -> None:
    client = Client([PARENT])
    logged = {n: Number("train/loss", 1.0, n, n) for n in range(2500)}
    synced(sweeps, client, {"dense": replace(VIEW, logged=logged)})
    calls = [call[1:] for call in client.of("new 1") if call[0] == "log_batch"]
    assert [(len(metrics), len(tags)) for metrics, _, tags in calls] == [
        (1000, 0),
        (1000, 0),
        (502, 6),
    ]
    assert "log=2499 " in calls[-1][2]["tread_lab.sent"]


def test_a_run_under_way_has_its_status_alone_and_one_that_ended_again_its_time(
    sweeps: Sweeps,
) -> None:
    tags = {"tread_lab.sent": "stamp=earlier log=2 born=2000 files=6e46ad538088f0e4"}
    client = Client([PARENT, kept(tags=tags)])
    synced(sweeps, client, {"dense": replace(VIEW, status="RUNNING", ended=None)})
    assert ("update_run", ("status", "RUNNING")) in client.of("old")
    assert "set_terminated" not in [name for name, *_ in client.of("old")]
    client = Client([PARENT, kept(tags=tags, end_time=4000)])
    synced(sweeps, client, {"dense": VIEW})
    assert ("set_terminated", ("status", "FINISHED"), ("end_time", 5000)) in client.of("old")


def test_a_contradicted_run_is_made_anew_with_what_a_person_typed(sweeps: Sweeps) -> None:
    old = kept(tags={"tread_lab.sent": "stamp=earlier log=2 born=1 files=x", "paper": "figure 8"})
    old.info.run_name = "my favourite"
    client = Client([PARENT, old])
    report = synced(sweeps, client, {"dense": VIEW})
    assert (report.created, report.updated, report.removed) == (1, 0, 1)
    assert (report.values, report.runs) == (5, 2)
    assert client.of("old") == [("delete_run",)]
    _, _, started, tags, name = next(call for call in client.calls if call[0] == "create_run")[:5]
    assert (started, name) == (1000, "my favourite")
    assert tags["paper"] == "figure 8" and tags["tread_lab.trial"] == TRIAL_OF_DENSE
    assert "cell" not in tags
    batch = client.of("new 1")[-1]
    assert batch[1] == [*LOGGED, *MEASURED] and "name=" not in batch[3]["tread_lab.authored"]


def test_doubles_and_runs_of_no_trial_are_removed(sweeps: Sweeps) -> None:
    strange = stored("strange", "x", tags={**OWNER, "tread_lab.trial": "gone"})
    client = Client([PARENT, kept(), kept("double"), strange, stored("second", "y", tags=OWNER)])
    report = synced(sweeps, client, {"dense": VIEW, "0->2 s=0.5": replace(VIEW, ended=4000)})
    assert (report.removed, report.runs) == (3, 3)
    ended = ("set_terminated", ("status", "FINISHED"), ("end_time", 5000))  # with its last trial
    assert ended in client.of("parent")
    removed = [call[1] for call in client.calls if call[0] == "delete_run"]
    assert removed == ["double", "second", "strange"]


def test_what_mlflow_refuses_of_a_trial_is_its_problem_and_else_ends_the_sync(
    sweeps: Sweeps,
) -> None:
    from mlflow.exceptions import MlflowException
    from mlflow.protos.databricks_pb2 import INVALID_PARAMETER_VALUE

    refused = MlflowException("too long\nmore", error_code=INVALID_PARAMETER_VALUE)
    views = {"dense": refused, "0->2 s=0.5": UserError("torn")}
    client = Client([PARENT])
    report = synced(sweeps, client, views)
    dense, routed = report.problems
    assert dense == f"{TRIAL_OF_DENSE}: too long"
    assert routed.startswith("placement/trial/") and routed.endswith(": torn")
    assert report.runs == 1 and report.created == 0
    with pytest.raises(MlflowException, match="no answer"):
        synced(sweeps, Client([PARENT]), {"dense": MlflowException("no answer")})


def test_a_driven_sweep_is_under_way_until_it_closes(
    sweeps: Sweeps, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(SweepFolder, "driven", property(lambda folder: True))
    for closing, expected in ((False, []), (True, ["KILLED"])):
        client = Client([PARENT])
        synced(sweeps, client, {"dense": VIEW}, closing=closing)
        ended = [call[1][1] for call in client.of("parent") if call[0] == "set_terminated"]
        assert ended == expected


def test_views_are_of_what_the_sweep_varies_and_are_sent_once(
    sweeps: Sweeps, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[dict[str, Any]] = []

    def views(**facts: Any) -> Any:
        made.append(facts)
        return SimpleNamespace(tags=lambda: {"a": "1", "b": "2"}, link=lambda name: f"#{name}")

    monkeypatch.setattr("tread_lab.tracking.mlflow_tracker.SavedViews", views)
    client = Client([PARENT])
    experiment = SimpleNamespace(experiment_id="7", tags={"a": "1", "b": "old"})
    synced(sweeps, client, {"dense": VIEW}, experiment=experiment)
    assert made == [
        {
            "sweep": "placement",
            "condition": f"{SEARCHED[2]} AND tags.`role` != 'sweep'",
            "metrics": [],
            "ranked_by": None,
            "varied": {"route_end", "route_length"},
            "pictures": ["pictures/samples"],
            "seed": 0,
            "step": 40,
            "trials": 1,
            "written": 9000,
        }
    ]
    tags = [call for call in client.calls if call[0] == "set_experiment_tag"]
    assert tags == [("set_experiment_tag", "7", "b", "2")]
    assert "(#7)" in client.of("parent")[-1][3]["mlflow.note.content"]


OF_NOW = ("tread_lab.sent", "tread_lab.lab", "mlflow.parentRunId", "tread_lab.authored")


def test_what_the_store_shows_of_a_sweep(
    one_of_four: tuple[str, Lab, str], store: Store, tmp_path: Path
) -> None:
    """Status, parameters, tags, numbers and artifacts of the sweep and of the runs of one seed."""
    from mlflow import MlflowClient

    name, lab, sweep = one_of_four
    uri = f"sqlite:///{store.path}"
    without = shutil.ignore_patterns("figures", "*.html")  # which other tests may have drawn
    own = Lab(shutil.copytree(lab.root, tmp_path / "copy", ignore=without))
    MlflowTracker(own, uri).sync(sweep)
    client = MlflowClient(tracking_uri=uri)
    runs = {run.info.run_name: run for run in client.search_runs(["1"])}
    assert len(runs) == len(client.search_runs(["1"]))
    shown = {
        title: {
            "status": run.info.status,
            "params": dict(sorted(run.data.params.items())),
            "tags": {k: v for k, v in sorted(run.data.tags.items()) if k not in OF_NOW},
            "metrics": {
                key: [(m.step, m.value) for m in client.get_metric_history(run.info.run_id, key)]
                for key in sorted(run.data.metrics)
            },
            "files": sorted(f.path for f in client.list_artifacts(run.info.run_id)),
        }
        for title, run in sorted(runs.items())
        if title.endswith("seed 0") or title == sweep
    }
    lines = re.sub("ShareKey=[0-9a-f]+", "", "\n".join(said(shown)) + "\n")  # of the plan's time
    for title, run in runs.items():
        lines = lines.replace(run.info.run_id, f"<{title}>")
    same_as_stored(STORED / f"{name}.txt", lines)
