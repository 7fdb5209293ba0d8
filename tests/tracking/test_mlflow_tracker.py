"""What a sync sends to an MLflow store and what it takes back, seen in the store itself."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.tracking.conftest import Store, Sweeps
from tread_lab.records.durable import write_text
from tread_lab.records.lab import Lab
from tread_lab.specs import RunSpec, encode, signature
from tread_lab.specs.cell import Trial

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
