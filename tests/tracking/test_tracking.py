"""The MLflow store equals the records whatever happened, and a replay adds nothing."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from pkgutil import resolve_name
from typing import Any

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
from tread_lab.records.lab import Lab
from tread_lab.records.status import RunState
from tread_lab.specs import UserError, signature
from tread_lab.tracking.projection import to_mlflow

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
    lab.run_of(spec).attempts.open(fingerprint={"code": "abc", "package our-tread": "1.4"})
    figures = lab.sweep("placement").figures
    figures.mkdir()
    (figures / "grid.png").write_bytes(b"PNG")
    sync()
    own = {"route": "0->2", "route_start": "0", "train.lr": "0.0001", "package our-tread": "1.4"}
    assert own.items() <= store.params("0->2 s=0.5 seed 0").items()
    assert "route_start" not in store.params("dense seed 0")  # a plot would draw it at 0
    tags = store.tags("0->2 s=0.5 seed 0")
    expected = {
        "cell": "0->2 s=0.5",
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


def test_a_guidance_that_is_planned_later_renames_nothing_and_makes_no_run_anew(
    lab: Lab, sweeps: Sweeps, store: Store, sync: Sync
) -> None:
    _, spec, _ = sweeps.complete(evaluate=(HELDOUT, SAMPLES))
    sync()
    sweeps.plan(evaluate=(HELDOUT, SAMPLES, GUIDED))
    folder = lab.run_of(spec).evaluation(GUIDED)
    folder.path.mkdir(parents=True)
    folder.write(GUIDED, {FD: 1.5}, step=40)
    assert sync().removed == 0
    latest = store.latest("0->2 s=0.5 seed 0")
    assert latest["fd:fashion16-v1:1k"] == 5.0
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


@pytest.mark.parametrize(
    "call",
    [
        "MlflowClient.log_batch",
        "MlflowClient.set_terminated",
        "store.artifact.local_artifact_repo.LocalArtifactRepository.log_artifacts",
    ],
)
def test_a_sync_that_was_cut_off_is_taken_up(
    call: str, sweeps: Sweeps, store: Store, sync: Sync, monkeypatch: pytest.MonkeyPatch
) -> None:
    from mlflow.exceptions import MlflowException

    sweeps.complete()
    real, left = resolve_name(f"mlflow.{call}"), [2]

    def failing(*args: Any, **options: Any) -> Any:
        left[0] -= 1
        if left[0] < 0:
            raise MlflowException("connection lost\nTraceback ...")
        return real(*args, **options)

    with monkeypatch.context() as patch:
        patch.setattr(f"mlflow.{call}", failing)
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
    assert "| 3 seeds | 3 |" in note


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


def test_a_full_replay_adds_nothing(sweeps: Sweeps, store: Store, sync: Sync) -> None:
    sweeps.complete()
    sync()
    before, counts = store.everything(), store.counts()
    store.rows("DELETE FROM tags WHERE key = 'tread_lab.sent'")
    assert sync().values > 0
    assert (store.everything(), store.counts()) == (before, counts)


def test_a_growing_log_sends_only_what_is_new(sweeps: Sweeps, store: Store, sync: Sync) -> None:
    baseline, *_ = sweeps.plan()
    sweeps.log(baseline, 5, 20)
    assert sync().values == 8
    sweeps.log(baseline, 25, 40)
    assert sync().values == 8
    assert store.count("metrics") == 16
