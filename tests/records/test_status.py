"""Claims about the state of a run: what follows from each, and what a record says of it."""

from __future__ import annotations

from tread_lab.records.lab import Lab
from tread_lab.records.run_status import run_status
from tread_lab.records.status import RunState, without_comparison
from tread_lab.records.sweep_folder import Stopped


def test_what_follows_from_each_state_is_in_one_table() -> None:
    assert [state for state in RunState if state.ended] == [
        "completed",
        "stopped",
        "diverged",
        "failed",
    ]
    assert [state for state in RunState if state.measurable] == ["completed", "stopped"]
    assert {str(s): s.lacks_result for s in RunState if s.lacks_result} == {
        "stopped": "was stopped early",
        "diverged": "diverged",
        "failed": "failed",
    }
    assert {state.sign + " " + state.label for state in RunState} == {
        "\u2026 not finished",
        "C completed",
        "S stopped early",
        "D diverged",
        "F failed",
    }
    line = without_comparison("dense seed 0", RunState.STOPPED)
    assert line == (
        "baseline dense seed 0 was stopped early: its trials have nothing to compare with"
    )


def test_a_result_of_an_unknown_state_is_no_result(lab: Lab) -> None:
    run = lab.run("abc")
    run.path.mkdir(parents=True)
    (run.path / "result.json").write_text('{"state": "paused"}')
    assert run.result() is None and run.state() is RunState.PENDING


def test_only_the_last_attempt_says_what_is_wrong(lab: Lab) -> None:
    run = lab.run("abc")
    run.attempts.close(run.attempts.open(), "exception", reason="boom")
    run.attempts.close(run.attempts.open(), "interrupted")
    assert (run_status(run).kind, run_status(run).reason) == ("", "")
    run.attempts.close(run.attempts.open(), "oom", reason="no memory\nat all")
    assert (run_status(run).kind, run_status(run).reason) == ("oom", "no memory")


def test_a_reason_of_the_result_stands_before_that_of_an_attempt(lab: Lab) -> None:
    run = lab.run("abc")
    run.attempts.close(run.attempts.open(), "oom", reason="no memory")
    run.finish(RunState.FAILED, kind="parent", reason="its parent failed")
    assert (run_status(run).kind, run_status(run).reason) == ("parent", "its parent failed")


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
