"""Claims about runs that a sweep stopped early: the last time counts, other states stay."""

from __future__ import annotations

from pathlib import Path

from tread_lab.records import stopped_early
from tread_lab.records.lines import append_line
from tread_lab.records.status import RunState
from tread_lab.records.stopped_early import Stopped, state_in_sweep


def test_the_last_time_that_a_run_was_stopped_counts(tmp_path: Path) -> None:
    path = tmp_path / "stopped.jsonl"
    for step in (100, 300, 200):
        stopped_early.append(path, Stopped("abc", step, f"at {step}"))
    assert stopped_early.read(path) == {"abc": Stopped("abc", 200, "at 200")}


def test_only_an_interrupted_run_of_that_sweep_is_seen_as_stopped() -> None:
    stopped = {"abc": Stopped("abc", 100, "worse")}
    assert state_in_sweep(RunState.INTERRUPTED, "abc", stopped) is RunState.STOPPED
    assert state_in_sweep(RunState.INTERRUPTED, "other", stopped) is RunState.INTERRUPTED
    assert state_in_sweep(RunState.RUNNING, "abc", stopped) is RunState.RUNNING


def test_a_line_of_another_kind_is_passed_over(tmp_path: Path) -> None:
    path = tmp_path / "stopped.jsonl"
    stopped_early.append(path, Stopped("a", 1, "worse"))
    for tree in ({"run": "b", "step": 2}, {"run": "c", "reason": "x"}, {"step": 3, "reason": "x"}):
        append_line(path, tree)
    stopped_early.append(path, Stopped("a", 5, "later"))
    assert stopped_early.read(path) == {"a": Stopped("a", 5, "later")}
