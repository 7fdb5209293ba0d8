"""The retry policy counts tries by kind of failure; `--retry-failed` reopens failed runs alone."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tread_lab.records.attempts import Attempt
from tread_lab.records.lab import Lab
from tread_lab.records.locks import Busy
from tread_lab.records.run_status import run_status
from tread_lab.records.status import RunState
from tread_lab.specs import RunSpec, UserError, decode, encode
from tread_lab.sweep.trial.retry import Decision, decide, failed_kind, failed_tasks, reopen
from tread_lab.sweep.trial.task import Task

Tiny = Callable[..., RunSpec]


def history(*kinds: str) -> list[Attempt]:
    return [Attempt(n=n, ended=kind) for n, kind in enumerate(kinds, 1)]


@pytest.mark.parametrize("kinds", [("died", "died"), ("oom", "exception"), ("hung", "died")])
def test_tries_of_different_kinds_are_counted_apart(kinds: tuple[str, ...]) -> None:
    assert decide(history(*kinds)).last is None


def test_a_run_ends_as_the_kind_that_used_up_its_tries() -> None:
    ended = decide(history("exception", "exception", "lost")).last
    assert ended is not None and (ended.n, ended.ended) == (2, "exception")


def test_an_earlier_lack_of_memory_still_asks_for_a_whole_device() -> None:
    assert decide(history("oom", "lost")) == Decision(whole_device=True)
    assert decide(history("lost", "oom", "died")) == Decision(whole_device=True)


def test_an_open_attempt_is_no_try() -> None:
    assert decide(history("exception", "")) == Decision()


def ended(lab: Lab, spec: RunSpec, state: str, **facts: Any) -> Task:
    folder = lab.run_of(spec)
    folder.create(spec)
    folder.attempts.close(folder.attempts.open(pid=1), facts.get("kind", "completed"))
    folder.finish(state, **facts)
    return Task(spec)


@pytest.fixture
def tasks(lab: Lab, tiny: Tiny) -> list[Task]:
    """completed, diverged, exception, oom, the child of the oom."""
    parent = tiny(seed=3)
    child = decode(RunSpec, {**encode(parent), "init_from": {"run": encode(parent)}})
    lab.run_of(child).create(child)
    lab.run_of(child).finish(RunState.FAILED, kind="parent", reason="its parent")
    return [
        ended(lab, tiny(seed=0), "completed"),
        ended(lab, tiny(seed=1), "diverged", kind="diverged"),
        ended(lab, tiny(seed=2), "failed", kind="exception", reason="RuntimeError: x\nmore"),
        ended(lab, parent, "failed", kind="oom", reason="too large"),
        Task(child),
    ]


def test_only_the_failed_are_taken_up_and_their_record_stays(lab: Lab, tasks: list[Task]) -> None:
    assert failed_tasks(lab, tasks) == tasks[2:]
    for task in failed_tasks(lab, tasks):
        reopen(lab, task)
    states = [lab.run(task.run).result() for task in tasks]
    assert [result is None for result in states] == [False, False, True, True, True]
    (attempt,) = lab.run_of(tasks[3].spec).attempts.read()
    assert attempt.ended == "oom" and attempt.forgiven


def test_of_a_kind_with_the_runs_that_failed_for_them(lab: Lab, tasks: list[Task]) -> None:
    assert failed_tasks(lab, tasks, ["oom"]) == [tasks[3], tasks[4]]
    assert failed_tasks(lab, tasks, ["exception"]) == [tasks[2]]
    assert failed_tasks(lab, tasks, ["hung"]) == []
    with pytest.raises(UserError, match="no kind of failure 'ooom', did you mean 'oom'"):
        failed_tasks(lab, tasks, ["ooom"])


def test_a_status_tells_kind_reason_and_attempts(lab: Lab, tasks: list[Task], tiny: Tiny) -> None:
    status = run_status(lab.run_of(tasks[2].spec))
    assert (status.state, status.kind, status.reason) == ("failed", "exception", "RuntimeError: x")
    assert len(status.attempts) == 1 and status.moved is not None
    fresh = run_status(lab.run_of(tiny(seed=9)))
    assert (fresh.state, fresh.kind, fresh.attempts, fresh.moved) == ("pending", "", (), None)


def test_a_failure_without_a_kind_on_record_is_an_exception(lab: Lab, tiny: Tiny) -> None:
    task = ended(lab, tiny(), "failed")
    assert failed_kind(lab.run(task.run)) == "exception"
    assert failed_tasks(lab, [task], ["exception"]) == [task]
    assert failed_kind(lab.run_of(tiny(seed=1))) is None


def test_a_child_is_taken_up_for_its_parent_only_if_that_is_taken_up(
    lab: Lab, tasks: list[Task]
) -> None:
    assert failed_tasks(lab, tasks, ["parent"]) == [tasks[4]]  # named itself
    assert failed_tasks(lab, [tasks[4]], ["oom"]) == []  # its parent is of another sweep
    assert failed_tasks(lab, tasks, ["oom", "exception"]) == tasks[2:]


def test_a_run_that_another_process_works_on_is_not_reopened(lab: Lab, tasks: list[Task]) -> None:
    with lab.run(tasks[2].run).lock(), pytest.raises(Busy):
        reopen(lab, tasks[2])
    assert failed_kind(lab.run(tasks[2].run)) == "exception"


def test_a_child_that_failed_by_itself_is_not_taken_up_for_its_parent(lab: Lab, tiny: Tiny) -> None:
    parent = tiny(seed=3)
    child = decode(RunSpec, {**encode(parent), "init_from": {"run": encode(parent)}, "seed": 4})
    tasks = [
        ended(lab, parent, "failed", kind="oom"),
        ended(lab, child, "failed", kind="exception"),
    ]
    assert failed_tasks(lab, tasks, ["oom"]) == [tasks[0]]
