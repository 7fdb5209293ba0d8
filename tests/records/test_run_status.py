"""Claims about the status of a run: its states, what is wrong, and what counts as progress."""

from __future__ import annotations

import os
from typing import Any

import pytest

from tread_lab.records.durable import modified
from tread_lab.records.lab import Lab
from tread_lab.records.log import append_line
from tread_lab.records.run_status import run_states, run_status
from tread_lab.records.status import RunState
from tread_lab.records.sweep_folder import Stopped


def test_a_run_that_is_worked_at_moved_when_its_files_did_and_another_as_its_records_say(
    lab: Lab,
) -> None:
    """A lab that was copied has new files, and nothing has moved."""
    run = lab.run("abc")
    assert run_status(run).moved is None
    run.attempts.close(run.attempts.open(), "completed")
    with run.log() as log:
        log(1, loss=0.5)
    run.heartbeat_path.touch()
    run.finish(RunState.COMPLETED, step=1)
    (entry,) = run.entries()
    later = entry.time + 1000
    for path in (run.path / name for name in ("log.jsonl", ".pulse", "result.json")):
        os.utime(path, (later, later))
        assert run_status(run).moved == pytest.approx(entry.time, abs=0.01)
        with run.lock():
            assert run_status(run).moved == later
        os.utime(path, (1000, 1000))
    run.log_path.unlink()
    assert run_status(run).moved == run.attempts.read()[0].time
    run.attempts.path.unlink()  # of which the first versions had none
    assert run_status(run).moved == max(
        map(modified, (run.heartbeat_path, run.path / "result.json"))
    )


def test_runs_have_states_and_those_without_a_folder_are_pending(lab: Lab) -> None:
    assert run_states(lab, ["a", "b"]) == dict.fromkeys("ab", RunState.PENDING)
    for name in ("b", "c"):
        with lab.run(name).log() as log:
            log(1, loss=1.0)
    lab.run("d").finish(RunState.FAILED, kind="oom")
    runs = ["a", "b", "c", "d"]
    seen = {"a": "pending", "b": "interrupted", "c": "interrupted", "d": "failed"}
    assert run_states(lab, runs) == seen
    stopped = {name: Stopped(name, 1, "worse") for name in ("a", "c", "d")}
    assert run_states(lab, runs, stopped) == {**seen, "c": "stopped"}


FAILED = {"state": RunState.FAILED}


@pytest.mark.parametrize(
    ("endings", "result", "kind", "reason"),
    [
        (["exception boom", "interrupted"], None, "", ""),  # the last attempt alone counts
        (["exception boom", "oom no memory\nat all"], None, "oom", "no memory"),
        (["oom no memory"], {**FAILED, "kind": "parent", "reason": "lost"}, "parent", "lost"),
        ([], FAILED, "exception", ""),
        ([], {"state": RunState.COMPLETED, "step": 1}, "", ""),
        (["melted too hot"], None, "melted", "too hot"),  # as a later version may say
    ],
)
def test_what_is_wrong_is_said_by_the_result_or_the_last_attempt(
    endings: list[str], result: dict[str, Any] | None, kind: str, reason: str, lab: Lab
) -> None:
    run = lab.run("abc")
    for ending in endings:
        ended, _, why = ending.partition(" ")
        line = {"event": "closed", "n": run.attempts.open().n, "ended": ended, "reason": why}
        append_line(run.attempts.path, line)
    if result is not None:
        run.finish(**result)
    assert (run_status(run).kind, run_status(run).reason) == (kind, reason)


def test_only_the_sweep_that_stopped_a_run_sees_it_as_stopped(lab: Lab) -> None:
    run = lab.run("abc")
    with run.log() as log:
        log(7, loss=1.0)
    stopped = {"abc": Stopped("abc", 5, "worse than the others")}
    assert (run_status(run).state, run_status(run).step) == (RunState.INTERRUPTED, 7)
    seen = run_status(run, stopped)
    assert (seen.state, seen.kind, seen.step) == (RunState.STOPPED, "early", 5)
    assert seen.reason == "worse than the others"
    run.finish(RunState.COMPLETED, step=9)
    assert run_status(run, stopped).state is RunState.COMPLETED
