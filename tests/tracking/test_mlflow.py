"""The MLflow store equals the records whatever happened, and a replay adds nothing."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path
from pkgutil import resolve_name
from typing import Any

import pytest

from tests.tracking.conftest import FD, SAMPLES, Store, Sweeps
from tread_lab.config import UserError, signature
from tread_lab.records.lab import Lab
from tread_lab.records.metric_names import GAP_HELDOUT, METRIC_KINDS, mlflow_name
from tread_lab.records.run_state import RunState
from tread_lab.results import cells_frame, trials_frame

ROUTED = "0->2 s=0.5 seed 0"
RESENT = "DELETE FROM tags WHERE key = 'tread_lab.sent'"


def test_replay_adds_nothing_and_rebuilds_stores(
    lab: Lab, sweeps: Sweeps, store: Store, empty_store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    specs = sweeps.plan(seeds=(0, 1))
    for spec, state in zip(specs, ("completed", "completed", "diverged", "failed", "completed")):
        sweeps.finish(spec, state)
    assert sweeps.sync() == {"created": 5}, "the sixth is pending"
    before, counts, names = store.everything(), store.counts(), store.runs()
    assert sweeps.sync() == {"unchanged": 5}
    store.rows(RESENT)
    assert sweeps.sync() == {"updated": 5}
    assert (store.everything(), store.counts(), store.runs()) == (before, counts, names)
    rebuilt = Store(shutil.copy(empty_store, lab.root / "rebuilt.db"))
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{rebuilt.path}")
    sweeps.sync()
    assert (rebuilt.everything(), rebuilt.counts()) == (before, counts)


def test_runs_show_settings_metrics_and_pictures(lab: Lab, sweeps: Sweeps, store: Store) -> None:
    early = replace(SAMPLES, step=20)
    specs = sweeps.plan()
    for spec in specs:
        run = sweeps.finish(spec)
        folder = run.evaluation(early)
        shutil.copytree(run.evaluation(SAMPLES).path, folder.path)
        folder.write(early, {FD: 9.0}, step=20)
    sweeps.sync()
    row = trials_frame(lab, "placement").set_index("run").loc[signature(specs[1])]
    query = "SELECT key, value FROM params WHERE run_uuid = ?"
    params = dict(store.rows(query, store.run_id(ROUTED)))
    settings = {"start": "0", "end": "2", "rate": "0.5", "seed": "0", "precision": "fp32"}
    assert settings.items() <= params.items() and params["train.steps"] == "40"
    latest, dense = store.latest(ROUTED), store.latest("dense seed 0")
    for name in (GAP_HELDOUT, f"{GAP_HELDOUT}:low", f"{GAP_HELDOUT}:high", FD, "cost/train_flops"):
        assert latest[mlflow_name(name)] == row[name]
    assert [value for name, value in dense.items() if "gap" in name] == [0.0, 0.0, 0.0]
    assert len(latest) <= 14, "the curves of the log, and at most a dozen others"
    files = lab.root / "mlartifacts" / store.run_id(ROUTED) / "artifacts"
    assert {path.name for path in files.iterdir()} >= {
        "spec.yaml", "samples_1k.png", "samples_1k_20.png", "layer_similarity.png",
    }  # fmt: skip
    steps = {path.name.split("+")[0:3:2] == ["samples_1k", "20"] for path in files.rglob("*.png")}
    assert steps == {True, False}


def test_resumed_runs_keep_their_ids(sweeps: Sweeps, store: Store) -> None:
    _, spec, _ = sweeps.plan()
    sweeps.log(spec, 5, 25)
    sweeps.sync()
    run_id, status = store.runs()[ROUTED]
    assert status == "KILLED"
    run = sweeps.log(spec, 15, 40, clock=7.0)  # steps 15 to 25 once more, at another speed
    with run.lock():
        sweeps.sync()
        assert store.runs()[ROUTED] == (run_id, "RUNNING")
    run.finish(RunState.COMPLETED, step=40)
    sweeps.sync()
    assert store.runs()[ROUTED] == (run_id, "FINISHED")
    steps = store.rows("SELECT key, step FROM metrics WHERE run_uuid = ?", run_id)
    assert len(steps) == len(set(steps)) == len(run.entries())


@pytest.mark.parametrize(
    "call",
    [
        "MlflowClient.log_batch",
        "store.artifact.local_artifact_repo.LocalArtifactRepository.log_artifacts",
    ],
)
def test_interrupted_sync_is_completed_by_the_next(
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
        with pytest.raises(UserError, match="connection lost"):
            sweeps.sync()
    sweeps.sync()
    completed = store.everything()
    store.rows(RESENT)
    sweeps.sync()
    assert store.everything() == completed
    assert set(store.statuses().values()) == {"FINISHED"} and len(store.runs()) == 3


def test_mixed_code_is_a_tag(lab: Lab, sweeps: Sweeps, store: Store) -> None:
    for spec, code in zip(sweeps.complete(), "aab"):
        lab.run_of(spec).open_attempt(fingerprint={"code": code})
    sweeps.sync()
    marked = [store.tags(name).get("mixed", "") for name in sorted(store.runs())]
    assert marked == ["", "True", ""]
    frame = trials_frame(lab, "placement")
    assert list(frame["mixed"]) == list(cells_frame(frame)["mixed"]) == [False, False, True]


@pytest.mark.parametrize("setting", ["", " w=1.5", " w=1.5 SG(0.5/0.9)", " ema=0.05 steps=20"])
@pytest.mark.parametrize("metric", [FD, "fid@10k", "fid[heldout]@50k", *METRIC_KINDS])
def test_mlflow_accepts_every_metric_name(metric: str, setting: str) -> None:
    from mlflow.utils.validation import _validate_metric_name

    name = mlflow_name(metric + setting)
    _validate_metric_name(name)
    assert mlflow_name(name) == name


def test_absent_servers_are_one_line(
    lab: Lab, sweeps: Sweeps, capfd: pytest.CaptureFixture[str]
) -> None:
    from tread_lab.tracking.mlflow_tracker import MlflowTracker

    sweeps.complete()
    with pytest.raises(UserError) as caught:
        MlflowTracker(lab, "http://user:secret@127.0.0.1:9").sync("placement")
    message = str(caught.value)
    assert "no MLflow server answers" in message and "MLFLOW_TRACKING_URI" in message
    assert "secret" not in message and "\n" not in message
    assert capfd.readouterr() == ("", "")
