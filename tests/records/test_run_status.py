"""Claims about the status of a run: what counts as progress."""

from __future__ import annotations

import os

from tread_lab.records.lab import Lab
from tread_lab.records.log import append_line
from tread_lab.records.run_status import count_states, run_status
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
        assert run_status(run).moved == entry.time
        with run.lock():
            assert run_status(run).moved == later
        os.utime(path, (1000, 1000))
    run.log_path.unlink()
    assert run_status(run).moved == run.attempts.read()[0].time


def test_runs_are_counted_by_state_and_those_without_a_folder_are_pending(lab: Lab) -> None:
    assert count_states(lab, ["a", "b"]) == {RunState.PENDING: 2}
    for name in ("b", "c"):
        with lab.run(name).log() as log:
            log(1, loss=1.0)
    lab.run("d").finish(RunState.FAILED, kind="oom")
    runs = ["a", "b", "c", "d"]
    assert count_states(lab, runs) == {"pending": 1, "interrupted": 2, "failed": 1}
    stopped = {name: Stopped(name, 1, "worse") for name in ("a", "c", "d")}
    seen = {"pending": 1, "interrupted": 1, "stopped": 1, "failed": 1}
    assert count_states(lab, runs, stopped) == seen
    assert count_states(lab, ["d", "d"]) == {"failed": 2}


def test_a_status_as_plain_values_has_each_attempt_in_short(lab: Lab) -> None:
    run = lab.run("abc")
    for ended in ("exception", "oom"):
        run.attempts.close(run.attempts.open(pid=1), ended, reason=f"{ended}!")
    run.finish(RunState.FAILED, step=4)
    tree = run_status(run).tree()
    assert tree.pop("moved") > 0
    assert tree == {
        "run": "abc", "state": "failed", "kind": "oom", "reason": "oom!", "step": 4,
        "attempts": [
            {"n": 1, "ended": "exception", "reason": "exception!"},
            {"n": 2, "ended": "oom", "reason": "oom!"},
        ],
    }  # fmt: skip


def test_a_failure_without_a_kind_is_an_exception_and_an_unknown_ending_is_told(lab: Lab) -> None:
    lab.run("a").finish(RunState.FAILED)
    assert (run_status(lab.run("a")).kind, run_status(lab.run("a")).reason) == ("exception", "")
    lab.run("b").finish(RunState.COMPLETED, step=1)
    assert run_status(lab.run("b")).kind == ""
    line = {"event": "closed", "n": 1, "ended": "melted", "reason": "too hot"}
    append_line(lab.run("c").attempts.path, line)
    assert (run_status(lab.run("c")).kind, run_status(lab.run("c")).reason) == ("melted", "too hot")
