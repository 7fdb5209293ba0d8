"""The MLflow store equals the records whatever happened, and a replay adds nothing."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pandas as pd
import pytest

from tests.tracking.conftest import (
    FD,
    GUIDED,
    HELDOUT,
    SAMPLES,
    Store,
    Sweeps,
)
from tread_lab.compare.gaps import run_gaps
from tread_lab.frames import is_metric, trials_frame
from tread_lab.records.lab import Lab, SweepFolder
from tread_lab.records.status import RunState
from tread_lab.specs import UserError, signature
from tread_lab.tracking.mlflow_names import to_mlflow
from tread_lab.tracking.mlflow_tracker import _SweepSync
from tread_lab.tracking.projection import Number, View
from tread_lab.tracking.tracker import SyncReport
from tread_lab.tracking.trial_names import Trial

Sync = Callable[..., Any]


def test_one_parent_and_a_child_for_each_trial(sweeps: Sweeps, store: Store, sync: Sync) -> None:
    sweeps.complete(seeds=(0, 1))
    assert sync().created == 7
    statuses = store.statuses()
    assert set(statuses) == {
        "placement",
        *(f"{cell} seed {s}" for cell in ("dense", "0->2 s=0.5", "1->4 s=0.5") for s in (0, 1)),
    }
    assert set(statuses.values()) == {"FINISHED"}
    parent = store.run_id("placement")
    children = [name for name in statuses if name != "placement"]
    assert {store.tags(name)["mlflow.parentRunId"] for name in children} == {parent}


def test_params_tags_and_artifacts_are_what_people_look_for(
    lab: Lab, sweeps: Sweeps, store: Store, sync: Sync
) -> None:
    (_, spec, _) = sweeps.complete()
    figures = lab.sweep("placement").figures
    figures.mkdir()
    (figures / "grid.png").write_bytes(b"PNG")
    sync()
    assert store.params("0->2 s=0.5 seed 0") == {
        "model": "DiT-6x16/2",
        "process": "edm",
        "fp32_block": "off",
        "route": "0->2",
        "route_start": "0",
        "route_end": "2",
        "route_length": "3",
        "selection_rate": "0.5",
        "precision": "fp32",
        "seed": "0",
    }
    assert "route_start" not in store.params("dense seed 0")  # a plot would draw it at 0
    tags = store.tags("0->2 s=0.5 seed 0")
    expected = {
        "cell": "0->2 s=0.5",
        "role": "trial",
        "state": "completed",
        "signature": signature(spec),
        "code": "abc1234-dirty",
        "mlflow.source.git.commit": "abc1234",
        "tread_lab.sweep": "placement",
        "tread_lab.trial": f"placement/trial/{signature(spec)}/end=2,rate=0.5,start=0",
    }
    assert expected.items() <= tags.items()
    folder = lab.root / "mlartifacts" / store.run_id("0->2 s=0.5 seed 0") / "artifacts"
    found = {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}
    assert {
        "spec.yaml",
        "result.json",
        "samples_1k/grid.png",
        "layer_similarity/similarity.csv",
        "layer_similarity/similarity.npz",
        "layer_similarity/similarity.png",
    } <= found
    assert sum(name.startswith("images/pictures~samples_1k+step+40+") for name in found) == 2
    folder = lab.root / "mlartifacts" / store.run_id("placement") / "artifacts"
    assert (folder / "figures/grid.png").read_bytes() == b"PNG"
    assert (folder / "plan.json").exists()


def test_metrics_are_the_log_the_evaluations_and_the_gaps(
    lab: Lab, sweeps: Sweeps, store: Store, sync: Sync
) -> None:
    baseline, spec, _ = sweeps.complete()
    sync()
    name = "0->2 s=0.5 seed 0"
    query = "SELECT key, step, timestamp, value FROM metrics WHERE run_uuid = ?"
    rows = store.rows(query, store.run_id(name))
    logged = {
        (entry.key, entry.step, round(entry.time * 1000), entry.value)
        for entry in lab.run_of(spec).entries()
    }
    assert logged <= set(rows)
    gaps = run_gaps(lab, signature(spec), signature(baseline))
    measured = {
        "heldout/loss",
        "similarity/adjacent",
        "fd:fashion16-v1:1k",
        "cost/train_flops",
        *(f"{key}{end}" for key in gaps for end in ("", ":low", ":high", ":n", ":kept")),
    }
    assert {key for key, *_ in set(rows) - logged} == measured
    assert {step for _, step, *_ in set(rows) - logged} == {40}
    assert len(rows) == len(logged) + len(measured)
    latest = store.latest(name)
    gap = gaps["gap/heldout"]
    assert (latest["gap/heldout"], latest["gap/heldout:low"]) == (gap.mean, gap.low)
    assert latest["fd:fashion16-v1:1k"] == 5.0
    assert "gap/heldout" not in store.latest("dense seed 0")


def test_a_second_sync_adds_nothing(sweeps: Sweeps, store: Store, sync: Sync) -> None:
    sweeps.complete()
    sync()
    before, counts = store.everything(), store.counts()
    report = sync()
    assert (report.created, report.updated, report.unchanged, report.values) == (0, 0, 4, 0)
    assert (store.everything(), store.counts()) == (before, counts)


def test_a_full_replay_adds_nothing(sweeps: Sweeps, store: Store, sync: Sync) -> None:
    sweeps.complete()
    sync()
    before, counts = store.everything(), store.counts()
    store.rows("DELETE FROM tags WHERE key = 'tread_lab.sent'")
    assert sync().values > 0
    assert (store.everything(), store.counts()) == (before, counts)


def test_a_deleted_store_is_rebuilt_equal(
    lab: Lab, sweeps: Sweeps, store: Store, sync: Sync, empty_store: Path
) -> None:
    specs = sweeps.plan(seeds=(0, 1))
    for spec, state in zip(specs, ("completed", "completed", "diverged", "failed", "completed")):
        sweeps.finish(spec, state)
    sync()
    before, counts = store.everything(), store.counts()
    store.path.unlink()
    shutil.copy(empty_store, store.path)
    sync()
    assert store.counts() == counts
    assert store.everything() == before


def test_every_state_has_its_status(lab: Lab, sweeps: Sweeps, store: Store, sync: Sync) -> None:
    routes = [(0, end) for end in range(6)]
    specs = sweeps.plan(routes=routes)
    states = ("completed", "stopped", "failed", "diverged")
    for spec, state in zip(specs, states):
        sweeps.finish(spec, state, reason="out of memory" if state == "failed" else "")
    sweeps.log(specs[4], 5, 20)
    running = sweeps.log(specs[5], 5, 20)
    with running.lock():
        sync()
        assert store.statuses() == {
            "placement": "RUNNING",
            "dense seed 0": "FINISHED",
            "0->0 s=0.5 seed 0": "KILLED",  # stopped early: it did not finish
            "0->1 s=0.5 seed 0": "FAILED",
            "0->2 s=0.5 seed 0": "FAILED",
            "0->3 s=0.5 seed 0": "KILLED",
            "0->4 s=0.5 seed 0": "RUNNING",
        }
    note = store.tags("0->1 s=0.5 seed 0")["mlflow.note.content"]
    assert note == "**failed**: out of memory"
    sync()
    assert store.statuses()["0->4 s=0.5 seed 0"] == "KILLED"
    assert store.statuses()["placement"] == "KILLED"


def test_the_sweep_ends_as_its_trials_end(sweeps: Sweeps, store: Store, sync: Sync) -> None:
    specs = sweeps.plan()
    sync()
    assert store.statuses() == {"placement": "SCHEDULED"}
    sweeps.finish(specs[0])
    sweeps.finish(specs[1], "diverged")
    with sweeps.lab.sweep("placement").lock():
        sync()
        assert store.statuses()["placement"] == "RUNNING"
        sync(closing=True)
        assert store.statuses()["placement"] == "KILLED"
    sweeps.finish(specs[2])
    sync()
    assert store.statuses()["placement"] == "FINISHED"  # diverged is a result
    sweeps.lab.run_of(specs[2]).finish(RunState.FAILED, reason="boom")
    sync()
    assert store.statuses()["placement"] == "FAILED"


def test_an_interrupted_run_goes_on_under_its_name(
    lab: Lab, sweeps: Sweeps, store: Store, sync: Sync
) -> None:
    _, spec, _ = sweeps.plan()
    name = "0->2 s=0.5 seed 0"
    sweeps.log(spec, 5, 25)
    sync()
    run_id, status = store.runs()[name]
    assert status == "KILLED"
    run = sweeps.log(spec, 15, 40, clock=7.0)  # steps 15 to 25 once more, at another speed
    with run.lock():
        sync()
        assert store.runs()[name] == (run_id, "RUNNING")
    run.finish(RunState.COMPLETED, step=40)
    sync()
    assert store.runs()[name] == (run_id, "FINISHED")
    steps = store.rows("SELECT key, step FROM metrics WHERE run_uuid = ?", run_id)
    assert len(steps) == len(set(steps)) == len(run.entries())
    assert store.tags(name)["attempts"] == "2"


def test_a_growing_log_sends_only_what_is_new(sweeps: Sweeps, store: Store, sync: Sync) -> None:
    baseline, *_ = sweeps.plan()
    sweeps.log(baseline, 5, 20)
    assert sync().values == 8
    sweeps.log(baseline, 25, 40)
    assert sync().values == 8
    assert store.count("metrics") == 16


def test_two_sweeps_share_a_run(sweeps: Sweeps, store: Store, sync: Sync) -> None:
    sweeps.complete("one", routes=[(0, 2)])
    sweeps.complete("two", routes=[(0, 2), (1, 4)])
    assert (sync("one").runs, sync("two").runs) == (3, 4)
    names = [row[0] for row in store.rows("SELECT name FROM runs")]
    assert sorted(names) == sorted(
        ["one", "two", *["dense seed 0", "0->2 s=0.5 seed 0"] * 2, "1->4 s=0.5 seed 0"]
    )
    assert (sync("one").unchanged, sync("two").unchanged) == (3, 4)


def test_what_was_deleted_by_hand_comes_back_and_doubles_go(
    sweeps: Sweeps, store: Store, sync: Sync
) -> None:
    sweeps.complete()
    sync()
    child, parent = store.run_id("0->2 s=0.5 seed 0"), store.run_id("placement")
    store.rows(
        "UPDATE runs SET lifecycle_stage = 'deleted' WHERE run_uuid IN (?, ?)", child, parent
    )
    assert sync().created == 2
    assert len(store.runs()) == 4
    parents = {store.tags(name).get("mlflow.parentRunId") for name in store.runs()}
    assert parents == {None, store.run_id("placement")}
    store.rows("UPDATE runs SET lifecycle_stage = 'active'")
    assert sync().removed == 2
    assert store.rows("SELECT count(*) FROM runs WHERE lifecycle_stage = 'active'") == [(4,)]


def test_two_samplers_keep_two_names(lab: Lab, sweeps: Sweeps, store: Store, sync: Sync) -> None:
    _, spec, _ = sweeps.complete(evaluate=(HELDOUT, SAMPLES, GUIDED))
    folder = lab.run_of(spec).evaluation(GUIDED)
    folder.path.mkdir(parents=True)
    folder.write(GUIDED, {FD: 1.5}, step=40)
    sync()
    latest = store.latest("0->2 s=0.5 seed 0")
    assert latest["fd:fashion16-v1:1k w:1"] == 5.0
    assert latest["fd:fashion16-v1:1k w:2"] == 1.5


def test_every_number_of_a_trials_row_is_in_mlflow_under_the_same_name(
    lab: Lab, sweeps: Sweeps, store: Store, sync: Sync
) -> None:
    sweeps.complete(evaluate=(HELDOUT, SAMPLES, GUIDED))
    sync()
    frame = trials_frame(lab, "placement")
    for _, row in frame.iterrows():
        numbers = row[[column for column in frame if is_metric(column)]].dropna()
        latest = store.latest(f"{row['cell']} seed {row['seed']}")
        assert {to_mlflow(name): value for name, value in numbers.items()}.items() <= latest.items()
        assert len({to_mlflow(name) for name in numbers.index}) == len(numbers)


def test_infinite_losses_do_not_flatten_the_curves(
    sweeps: Sweeps, store: Store, sync: Sync
) -> None:
    baseline, *_ = sweeps.plan()
    run = sweeps.log(baseline, 5, 10)
    with run.log() as log:
        log(15, **{"train/loss": float("inf")})
    run.finish(RunState.DIVERGED, step=15, reason="loss is inf")
    sync()
    query = "SELECT step, is_nan FROM metrics WHERE key = 'train/loss' ORDER BY step"
    assert store.rows(query) == [(5, 0), (10, 0), (15, 1)]


def test_long_logs_and_many_runs_take_several_calls(
    sweeps: Sweeps, store: Store, sync: Sync, monkeypatch: pytest.MonkeyPatch
) -> None:
    from mlflow import MlflowClient

    real, sent = MlflowClient.log_batch, list[int]()

    def counted(client: Any, run: str, metrics: Any, *rest: Any) -> Any:
        sent.append(len(metrics))
        return real(client, run, metrics, *rest)

    monkeypatch.setattr(MlflowClient, "log_batch", counted)
    monkeypatch.setattr("tread_lab.tracking.mlflow_tracker.BATCH", 3)
    sweeps.complete(routes=[(0, end) for end in range(1, 6)])
    done = sync()
    assert done.created == 7 and max(sent) == 3 and sum(sent) == done.values
    assert sync().unchanged == 7


@pytest.mark.parametrize("call", ["log_batch", "log_artifacts", "set_terminated", "set_tag"])
def test_a_sync_that_was_cut_off_is_taken_up(
    call: str, sweeps: Sweeps, store: Store, sync: Sync, monkeypatch: pytest.MonkeyPatch
) -> None:
    from mlflow import MlflowClient
    from mlflow.exceptions import MlflowException

    sweeps.complete()
    real, left = getattr(MlflowClient, call), [2]

    def failing(*args: Any, **options: Any) -> Any:
        left[0] -= 1
        if left[0] < 0:
            raise MlflowException("connection lost\nTraceback ...")
        return real(*args, **options)

    with monkeypatch.context() as patch:
        patch.setattr(MlflowClient, call, failing)
        with pytest.raises(UserError, match="connection lost; sync again"):
            sync()
    sync()
    cut_off = store.everything()
    store.rows("DELETE FROM tags WHERE key = 'tread_lab.sent'")
    sync()
    assert store.everything() == cut_off
    assert len(store.runs()) == 4 and set(store.statuses().values()) == {"FINISHED"}


def test_a_damaged_evaluation_is_a_problem_of_one_run(
    lab: Lab, sweeps: Sweeps, store: Store, sync: Sync
) -> None:
    _, spec, _ = sweeps.complete()
    (lab.run_of(spec).evaluation(HELDOUT).path / "losses.npz").write_bytes(b"PK")
    for _ in range(2):  # it is told each time
        (problem,) = sync().problems
        assert "losses.npz" in problem and "\n" not in problem
    latest = store.latest("0->2 s=0.5 seed 0")
    assert "gap/heldout" not in latest and "heldout/loss" in latest
    assert "gap/heldout" in store.latest("1->4 s=0.5 seed 0")


def test_the_sweeps_note_ranks_the_cells(sweeps: Sweeps, store: Store, sync: Sync) -> None:
    sweeps.complete(seeds=(0, 1, 2))
    sync()
    note = store.tags("placement")["mlflow.note.content"]
    assert note.startswith("**Where?**")
    assert "9 trials: 9 completed" in note and "where: start < end" in note
    assert note.index("`0->2 s=0.5`") < note.index("`1->4 s=0.5`")  # the shorter route is better
    assert "over seeds | 3 |" in note


def test_views_of_the_sweep_are_saved_and_linked(sweeps: Sweeps, store: Store, sync: Sync) -> None:
    sweeps.complete()
    sync()
    query = "SELECT key, value FROM experiment_tags WHERE key LIKE 'mlflow.sharedViewState.%'"
    views = {json.loads(value)["name"]: key for key, value in store.rows(query)}
    assert set(views) == {"placement", "placement pictures"}
    key = views["placement"].rpartition(".")[2]
    assert f"viewStateShareKey={key}&" in store.tags("placement")["mlflow.note.content"]


def test_two_labs_on_one_store_do_not_touch_each_other(
    lab: Lab, sweeps: Sweeps, store: Store, sync: Sync, tmp_path: Path
) -> None:
    from tread_lab.tracking.mlflow_tracker import MlflowTracker

    sweeps.complete()
    sync()
    other = Sweeps(Lab(tmp_path / "other"))
    other.complete()
    report = MlflowTracker(other.lab, lab.mlflow_uri).sync("placement")
    assert (report.created, report.removed) == (4, 0)
    assert sync().unchanged == 4


def test_an_unknown_sweep_names_the_known(sweeps: Sweeps, store: Store, sync: Sync) -> None:
    sweeps.plan()
    with pytest.raises(UserError, match="did you mean 'placement'"):
        sync("placment")


class Client:
    """MLflow's client, whose calls are noted; `stored` is what its search finds, page by page."""

    def __init__(self, *pages: list[Any]) -> None:
        self.pages, self.calls = list(pages) or [[]], list[Any]()

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
    params={"seed": "0", "route": "dense"},
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

    def shown(trial: Trial, state: RunState) -> View:
        if isinstance(views[trial.label], Exception):
            raise views[trial.label]
        return views[trial.label]

    projection: Any = SimpleNamespace(
        state=lambda trial: RunState.COMPLETED if trial.label in views else RunState.PENDING,
        frame=lambda trials: frame(trials),
        pictures=lambda: ["pictures/samples"],
        stamp=lambda trial, state: f"{trial.label} {state}".replace(" ", "_"),
        view=shown,
    )
    pass_ = _SweepSync(client, experiment, sweeps.lab, sweep, sweep.plan(), projection)
    return pass_.run(closing=closing)


def frame(trials: Sequence[Trial]) -> pd.DataFrame:
    """A row for each trial, with the axes of its route and one metric."""
    return pd.DataFrame(
        {
            "run": [trial.stored.run for trial in trials],
            "cell": [trial.label for trial in trials],
            "state": "completed",
            "role": [trial.stored.role for trial in trials],
            "route_start": [None, 0.0][: len(trials)],
            "route_end": range(len(trials)),
            "route_length": range(len(trials)),
            "selection_rate": 0.5,
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
        (
            "log_batch",
            [*LOGGED, *MEASURED],
            {"seed": "0", "route": "dense"},
            {**VIEW.tags, "tread_lab.authored": DIGESTS},
        ),
        ("log_artifacts", {"deep/note.txt": "x", "raw": "y"}),
        ("set_terminated", ("status", "FINISHED"), ("end_time", 5000)),
        ("set_tag", "tread_lab.sent", SENT_DENSE),
    ]
    batch, files, ended, sent = client.of("new 1")
    assert batch[1:3] == ([], {}) and batch[3]["progress"] == "2 trials: 1 completed, 1 pending"
    assert list(files[1]) == ["plan.json"]
    assert ended == ("set_terminated", ("status", "KILLED"), ("end_time", 5000))
    assert sent[2].endswith(" log=-1 born=0 files=" + sent[2].rpartition("=")[2])


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
    assert client.of("parent")[2] == ("set_terminated", ("status", "KILLED"), ("end_time", 5000))


def test_a_run_that_went_on_gets_what_is_new(sweeps: Sweeps) -> None:
    sent = "stamp=earlier log=1 born=2000 files=6e46ad538088f0e4"
    old = kept(tags={"tread_lab.sent": sent}, params={"seed": "0"}, status="RUNNING", end_time=None)
    client, view = Client([PARENT, old]), replace(VIEW, tags={"cell": "dense", "role": "other"})
    report = synced(sweeps, client, {"dense": view})
    assert report == SyncReport("placement", runs=2, updated=1, values=3)
    first, second, *calls = client.of("old")
    assert {first, second} == {("delete_tag", "mlflow.note.content"), ("delete_tag", "problem")}
    assert calls == [
        (
            "log_batch",
            [LOGGED[2], *MEASURED],
            {"route": "dense"},
            {"role": "other", "tread_lab.authored": "name=6adb6ec62caf831f"},
        ),
        ("set_terminated", ("status", "FINISHED"), ("end_time", 5000)),
        ("set_tag", "tread_lab.sent", SENT_DENSE),
    ]


def test_a_run_under_way_has_its_status_alone(sweeps: Sweeps) -> None:
    old = kept(tags={"tread_lab.sent": "stamp=earlier log=2 born=2000 files=6e46ad538088f0e4"})
    client = Client([PARENT, old])
    synced(sweeps, client, {"dense": replace(VIEW, status="RUNNING", ended=None)})
    assert ("update_run", ("status", "RUNNING")) in client.of("old")
    assert "set_terminated" not in [name for name, *_ in client.of("old")]


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
    batch = client.of("new 1")[0]
    assert batch[1] == [*LOGGED, *MEASURED] and "name=" not in batch[3]["tread_lab.authored"]


def test_doubles_and_runs_of_no_trial_are_removed(sweeps: Sweeps) -> None:
    strange = stored("strange", "x", tags={**OWNER, "tread_lab.trial": "gone"})
    client = Client([PARENT, kept(), kept("double"), strange, stored("second", "y", tags=OWNER)])
    report = synced(sweeps, client, {"dense": VIEW})
    assert (report.removed, report.runs) == (3, 2)
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
    assert "(#7)" in client.of("parent")[0][3]["mlflow.note.content"]
