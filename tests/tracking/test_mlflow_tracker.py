"""What a sync sends to an MLflow store and what it takes back, seen in the store itself."""

from __future__ import annotations

import base64
import json
import os
import re
import shutil
import zlib
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.four_sweeps import said, same_as_stored
from tests.tracking.conftest import Store, Sweeps, spec_of
from tread_lab.records.durable import write_text
from tread_lab.records.lab import Lab
from tread_lab.specs import RunSpec, encode, signature
from tread_lab.specs.cell import Trial
from tread_lab.tracking.mlflow_tracker import MlflowTracker
from tread_lab.tracking.store import identity

STORED = Path(__file__).parent / "stored"


def also_planned(
    lab: Lab, spec: RunSpec, role: str, baseline: RunSpec | None = None, **cell: Any
) -> None:
    """Add a trial to the plan of the sweep."""
    folder = lab.sweep("placement")
    beside = None if baseline is None else signature(baseline)
    trial = Trial(role, cell, spec.seed, encode(spec), signature(spec), beside)
    plan = folder.plan()
    write_text(folder.plan_path, replace(plan, trials=(*plan.trials, trial)).text())


def test_runs_begin_and_end_as_records_say_and_a_sweep_ends_with_its_last_trial(
    lab: Lab, sweeps: Sweeps, store: Store
) -> None:
    for number, spec in enumerate(sweeps.complete(), 1):
        os.utime(lab.run_of(spec).path / "spec.yaml", (7, 7))
        ended = lab.run_of(spec).path / "result.json"
        os.utime(ended, (4e9 + number, 4e9 + number))
    os.utime(lab.sweep("placement").plan_path, (9, 9))
    sweeps.sync()
    times = "SELECT start_time, end_time FROM runs ORDER BY end_time, start_time"
    trials = [(7000, 4 * 10**12 + 1000 * number) for number in (1, 2, 3)]
    assert store.rows(times) == [*trials, (9000, trials[-1][1])]
    os.utime(ended, (5e9, 5e9))  # it has gone on, and ended again
    assert sweeps.sync().updated == 2
    assert store.rows(times)[-2:] == [(7000, 5 * 10**12), (9000, 5 * 10**12)]


def test_more_numbers_than_one_call_takes_are_all_sent(sweeps: Sweeps, store: Store) -> None:
    _, spec, _ = sweeps.plan()
    with sweeps.log(spec, 5, 20).log() as log:
        for step in range(21, 2521):
            log(step, **{"train/loss": 1.0})
    report = sweeps.sync()
    assert (report.values, report.problems) == (2508, ())
    assert store.rows("SELECT count(*), max(step) FROM metrics") == [(2508, 2520)]
    assert sweeps.sync().values == 0
    with sweeps.lab.run_of(spec).log() as log:
        log(2521, **{"train/loss": 1.0})
    assert sweeps.sync().values == 1  # what was sent is not sent again


def test_runs_on_later_pages_of_the_store_are_found(
    sweeps: Sweeps, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    sweeps.complete()
    assert sweeps.sync().created == 4
    monkeypatch.setattr("tread_lab.tracking.mlflow_tracker.BATCH", 1)
    assert sweeps.sync().created == 0 and store.count("runs") == 4


def test_a_run_whose_cell_has_another_label_is_named_anew(
    lab: Lab, sweeps: Sweeps, store: Store
) -> None:
    dense, _ = sweeps.complete(routes=[(0, 2)])
    plan = (folder := lab.sweep("placement")).plan()
    write_text(folder.plan_path, replace(plan, trials=plan.trials[:1]).text())
    sweeps.sync()
    run = store.run_id("dense seed 0")
    other = spec_of(None, precision="bf16")
    also_planned(lab, other, "baseline")
    for precision, baseline in (("fp32", dense), ("bf16", other)):
        routed = spec_of((2, 3), precision=precision)
        also_planned(lab, routed, "trial", baseline, precision=precision)
    sweeps.sync()
    assert store.run_id("dense precision=fp32 seed 0") == run


def test_what_mlflow_refuses_of_a_trial_is_a_problem_of_that_one(
    sweeps: Sweeps, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    from mlflow import MlflowClient
    from mlflow.exceptions import MlflowException
    from mlflow.protos.databricks_pb2 import INVALID_PARAMETER_VALUE

    send, first = MlflowClient.log_batch, [True]

    def refusing(*arguments: Any) -> None:
        if first:
            first.clear()
            raise MlflowException("too long\nmore", error_code=INVALID_PARAMETER_VALUE)
        send(*arguments)

    monkeypatch.setattr(MlflowClient, "log_batch", refusing)
    dense, *_ = sweeps.complete()
    report = sweeps.sync()
    assert report.problems == (f"placement/baseline/{signature(dense)}/: too long",)
    assert report.runs == 3
    assert sweeps.sync().problems == ()


def test_a_driven_sweep_is_under_way_until_it_closes(
    lab: Lab, sweeps: Sweeps, store: Store
) -> None:
    dense, *_ = sweeps.plan()
    sweeps.finish(dense)
    with lab.sweep("placement").lock():
        statuses = []
        for closing in (False, True):
            sweeps.sync(closing=closing)
            statuses.append(store.statuses()["placement"])
    assert statuses == ["RUNNING", "KILLED"]
    assert store.tags("placement")["progress"] == "3 trials: 1 completed, 2 pending"


def test_saved_views_are_of_the_trials_of_this_sweep_at_their_last_step(
    lab: Lab, sweeps: Sweeps, store: Store
) -> None:
    sweeps.complete(seeds=(0, 1))
    also_planned(
        lab, spec_of(None, train={"steps": 90, "batch": 8}), "trial", **{"train.steps": 90}
    )
    sweeps.sync()
    views = {}
    for (text,) in store.rows("SELECT value FROM experiment_tags WHERE value LIKE '%deflate;%'"):
        tree = json.loads(text)
        packed = tree["state"].removeprefix("deflate;")
        views[tree["name"]] = json.loads(zlib.decompress(base64.b64decode(packed)))
    cells, pictures = views["placement"], views["placement pictures"]
    name = identity(lab, lab.mlflow_uri)
    own = f"tags.`tread_lab.sweep` = 'placement' AND tags.`tread_lab.lab` = '{name}'"
    assert cells["searchFilter"] == f"{own} AND tags.`role` != 'sweep'"
    assert pictures["searchFilter"] == f"{cells['searchFilter']} AND params.`seed` = '0'"
    assert cells["orderByKey"] == "metrics.`gap/heldout`"
    charts = [*cells["compareRunCharts"], *pictures["compareRunCharts"]]
    assert {chart["step"] for chart in charts if chart["type"] == "IMAGE"} == {90}
    assert "CONTOUR" in {chart["type"] for chart in charts}


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
