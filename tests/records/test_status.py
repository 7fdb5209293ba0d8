"""Claims about the state of a run: what follows from each, and what a record says of it."""

from __future__ import annotations

from tread_lab.records.lab import Lab
from tread_lab.records.status import RunState, without_comparison


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
