"""The MLflow store equals the records whatever happened, and a replay adds nothing."""

from __future__ import annotations

import shutil
from pathlib import Path
from pkgutil import resolve_name
from typing import Any

import pytest

from tests.tracking.conftest import SAMPLES, Store, Sweeps
from tread_lab.records.durable import write_text
from tread_lab.records.lab import Lab
from tread_lab.records.status import RunState
from tread_lab.specs import UserError


def test_a_replay_adds_nothing_and_a_deleted_store_is_rebuilt_equal(
    lab: Lab, sweeps: Sweeps, store: Store, empty_store: Path
) -> None:
    specs = sweeps.plan(seeds=(0, 1))
    for spec, state in zip(specs, ("completed", "completed", "diverged", "failed", "completed")):
        sweeps.finish(spec, state)
    assert sweeps.sync().created == 6  # one is pending, and the sweep has a run of its own
    before, counts = store.everything(), store.counts()
    report = sweeps.sync()
    assert (report.created, report.updated, report.unchanged, report.values) == (0, 0, 6, 0)
    assert (store.everything(), store.counts()) == (before, counts)
    store.rows("DELETE FROM tags WHERE key = 'tread_lab.sent'")
    assert sweeps.sync().values > 0
    assert (store.everything(), store.counts()) == (before, counts)
    store.path.unlink()
    shutil.copy(empty_store, store.path)
    sweeps.sync()
    assert (store.everything(), store.counts()) == (before, counts)
    folder = lab.root / "mlartifacts" / store.run_id("dense seed 0") / "artifacts"
    own = lab.run_of(specs[0])
    assert (folder / "spec.yaml").read_bytes() == (own.path / "spec.yaml").read_bytes()
    grid = own.evaluation(SAMPLES).path / "grid.png"
    assert (folder / "samples_1k/grid.png").read_bytes() == grid.read_bytes()


def test_an_interrupted_run_goes_on_under_its_name(lab: Lab, sweeps: Sweeps, store: Store) -> None:
    _, spec, _ = sweeps.plan()
    name = "0->2 s=0.5 seed 0"
    sweeps.log(spec, 5, 25)
    sweeps.sync()
    run_id, status = store.runs()[name]
    assert status == "KILLED"
    run = sweeps.log(spec, 15, 40, clock=7.0)  # steps 15 to 25 once more, at another speed
    with run.lock():
        sweeps.sync()
        assert store.runs()[name] == (run_id, "RUNNING")
    run.finish(RunState.COMPLETED, step=40, metrics={"train/images_per_s": 90.0})
    sweeps.sync()
    assert store.runs()[name] == (run_id, "FINISHED")
    steps = store.rows("SELECT key, step FROM metrics WHERE run_uuid = ?", run_id)
    assert len(steps) == len(set(steps)) + 1 == len(run.entries()) + 1  # and that of the result
    assert store.latest(name)["train/images_per_s"] == 90.0
    assert store.tags(name)["attempts"] == "2"


def test_sweeps_and_labs_on_one_store_do_not_touch_each_other(
    lab: Lab, sweeps: Sweeps, store: Store, tmp_path: Path
) -> None:
    from tread_lab.tracking.mlflow_tracker import MlflowTracker

    sweeps.complete("one", routes=[(0, 2)])
    sweeps.complete("two", routes=[(0, 2), (1, 4)])
    assert (sweeps.sync("one").runs, sweeps.sync("two").runs) == (
        3,
        4,
    )  # a run of both is there twice
    names = [row[0] for row in store.rows("SELECT name FROM runs")]
    assert sorted(names) == sorted(
        ["one", "two", *["dense seed 0", "0->2 s=0.5 seed 0"] * 2, "1->4 s=0.5 seed 0"]
    )
    other = Sweeps(Lab(tmp_path / "other"))
    other.complete("one", routes=[(0, 2)])
    report = MlflowTracker(other.lab, lab.mlflow_uri).sync("one")
    assert (report.created, report.removed) == (3, 0)
    assert (sweeps.sync("one").unchanged, sweeps.sync("two").unchanged) == (3, 4)


def test_what_was_deleted_by_hand_comes_back(sweeps: Sweeps, store: Store) -> None:
    sweeps.complete()
    sweeps.sync()
    child, parent = store.run_id("0->2 s=0.5 seed 0"), store.run_id("placement")
    store.rows(
        "UPDATE runs SET lifecycle_stage = 'deleted' WHERE run_uuid IN (?, ?)", child, parent
    )
    assert sweeps.sync().created == 2
    assert len(store.runs()) == 4
    parents = {store.tags(name).get("mlflow.parentRunId") for name in store.runs()}
    assert parents == {None, store.run_id("placement")}
    sweeps.plan(routes=[(0, 2)])
    assert sweeps.sync().removed == 1, "the run of no trial"
    assert len(store.runs()) == 3


@pytest.mark.parametrize(
    "call",
    [
        "MlflowClient.log_batch",
        "store.artifact.local_artifact_repo.LocalArtifactRepository.log_artifacts",
    ],
)
def test_a_sync_that_was_cut_off_is_taken_up(
    call: str, sweeps: Sweeps, store: Store, monkeypatch: pytest.MonkeyPatch
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
            sweeps.sync()
    sweeps.sync()
    cut_off = store.everything()
    store.rows("DELETE FROM tags WHERE key = 'tread_lab.sent'")
    sweeps.sync()
    assert store.everything() == cut_off
    assert len(store.runs()) == 4 and set(store.statuses().values()) == {"FINISHED"}


def test_a_figure_that_a_sweep_has_no_longer_goes_from_its_artifacts(
    lab: Lab, sweeps: Sweeps, store: Store
) -> None:
    sweeps.complete()
    figures = lab.sweep("placement").figures
    for name in ("a.png", "b.png"):
        write_text(figures / name, name)
    sweeps.sync()
    (figures / "a.png").unlink()
    assert sweeps.sync().updated == 1
    folder = lab.root / "mlartifacts" / store.run_id("placement") / "artifacts/figures"
    assert [path.name for path in folder.iterdir()] == ["b.png"]
