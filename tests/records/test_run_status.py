"""The status of a run: its state, what is wrong, and when its record last grew."""

from __future__ import annotations

import os
from typing import Any

import pytest

from tread_lab.records.lab import Lab
from tread_lab.records.run_state import RunState
from tread_lab.records.run_status import run_states, run_status
from tread_lab.records.sweep_folder import Judgement


def test_run_moved_when_its_record_grew(lab: Lab) -> None:
    run = lab.run("abc")
    assert run_status(run).moved is None
    run.close_attempt(run.open_attempt(), "completed")
    with run.log() as log:
        log(1, loss=0.5)
    run.finish(RunState.COMPLETED, step=1)
    later = run.log_path.stat().st_mtime + 1000
    for name in ("log.jsonl", "attempts.jsonl", "result.json"):
        os.utime(run.path / name, (later, later))
        assert run_status(run).moved == later
        later += 1000


def test_run_without_a_folder_is_pending(lab: Lab) -> None:
    assert run_states(lab, ["a", "b"]) == dict.fromkeys("ab", RunState.PENDING)
    for name in ("b", "c"):
        with lab.run(name).log() as log:
            log(1, loss=1.0)
    lab.run("d").finish(RunState.FAILED, kind="exception")
    runs = ["a", "b", "c", "d"]
    seen = {"a": "pending", "b": "interrupted", "c": "interrupted", "d": "failed"}
    assert run_states(lab, runs) == seen
    stopped = {name: Judgement(name, 1, 0.5) for name in ("a", "c", "d")}
    assert run_states(lab, runs, stopped) == {**seen, "c": "stopped"}


FAILED = {"state": RunState.FAILED}


@pytest.mark.parametrize(
    ("endings", "result", "kind", "reason"),
    [
        (["exception boom", "interrupted"], None, "", ""),  # the last attempt alone counts
        (["exception boom", "oom no memory\nat all"], None, "oom", "no memory"),
        (["oom no memory"], {**FAILED, "kind": "parent", "reason": "lost"}, "parent", "lost"),
        ([], {"state": RunState.COMPLETED, "step": 1}, "", ""),
    ],
)
def test_status_names_what_went_wrong(
    endings: list[str], result: dict[str, Any] | None, kind: str, reason: str, lab: Lab
) -> None:
    run = lab.run("abc")
    for ending in endings:
        ended, _, why = ending.partition(" ")
        run.close_attempt(run.open_attempt(), ended, reason=why)
    if result is not None:
        run.finish(**result)
    assert (run_status(run).kind, run_status(run).reason) == (kind, reason)


def test_only_the_stopping_sweep_sees_stopped(lab: Lab) -> None:
    run = lab.run("abc")
    with run.log() as log:
        log(7, loss=1.0)
    stopped = {"abc": Judgement("abc", 5, 0.5)}
    assert (run_status(run).state, run_status(run).step) == (RunState.INTERRUPTED, 7)
    seen = run_status(run, stopped)
    assert (seen.state, seen.kind, seen.step) == (RunState.STOPPED, "early", 5)
    assert seen.reason == "asha at step 5: training gap +0.5000, others are better"
    run.finish(RunState.COMPLETED, step=9)
    assert run_status(run, stopped).state is RunState.COMPLETED
