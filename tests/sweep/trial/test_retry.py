"""The retry policy counts tries by kind of failure; `--retry-failed` reopens failed runs alone."""

from __future__ import annotations

import itertools
from dataclasses import replace
from typing import Any

import pytest

from tests.pretender import ended_run
from tests.sweep.plans import tiny
from tread_lab.records.attempts import EXIT_REASONS, Attempt
from tread_lab.records.lab import Lab
from tread_lab.records.locks import Busy
from tread_lab.specs import RunSpec, UserError, decode, encode
from tread_lab.sweep.trial.retry import (
    consequence,
    failed_kind,
    failed_tasks,
    last_try,
    reopen,
)
from tread_lab.sweep.trial.task import Task


def history(*kinds: str) -> list[Attempt]:
    return [Attempt(n=n, ended=kind) for n, kind in enumerate(kinds, 1)]


TRIES = {"exception": 2, "died": 3, "hung": 2}
ENDINGS = (*TRIES, "lost", "")  # the last is of an open attempt, which is no try


@pytest.mark.parametrize("count", range(5))
def test_the_record_alone_decides_whether_a_run_is_tried_again(count: int) -> None:
    """Every record of so many attempts, of which the first ones may be forgiven."""
    for kinds in itertools.product(ENDINGS, repeat=count):
        for forgiven in (0, count // 2, count):
            attempts = [replace(one, forgiven=one.n <= forgiven) for one in history(*kinds)]
            left = kinds[forgiven:]
            used_up = {kind for kind, tries in TRIES.items() if left.count(kind) >= tries}
            last = [one for one in attempts[forgiven:] if one.ended in used_up]
            assert last_try(attempts) == (last[-1] if last else None), (kinds, forgiven)
    for kind in EXIT_REASONS.keys() - TRIES:
        assert last_try(history(*[kind] * 50)) is None


@pytest.mark.parametrize(
    ("kinds", "forgiven", "follows"),
    [
        (["lost"] * 9, 0, "the run goes back to the queue, with all its tries"),
        (["died", "hung"], 0, "the run goes back to the queue, with 1 more of 2 tries"),
        (["hung", "died", "hung"], 0, "its tries are used up"),
        (["died"] * 4, 2, "the run goes back to the queue, with 1 more of 3 tries"),
    ],
)
def test_what_follows_is_said_of_the_last_ending_and_the_tries_that_count(
    kinds: list[str], forgiven: int, follows: str
) -> None:
    attempts = [replace(one, forgiven=one.n <= forgiven) for one in history(*kinds)]
    assert consequence(attempts) == follows


def test_an_ending_without_an_entry_is_an_error_and_not_a_run_without_end() -> None:
    with pytest.raises(UserError, match="attempt has ended: unknown 'oomm', did you mean 'oom'"):
        last_try(history("oomm"))


def ended(lab: Lab, spec: RunSpec, state: str, **facts: Any) -> Task:
    folder = lab.run_of(spec)
    folder.create(spec)
    folder.attempts.close(folder.attempts.open(pid=1), facts.get("kind", "completed"))
    folder.finish(state, **facts)
    return Task(spec)


@pytest.fixture
def tasks(lab: Lab) -> list[Task]:
    """completed, diverged, exception, hung, the child of the hung."""
    parent = tiny(seed=3)
    child = decode(RunSpec, {**encode(parent), "init_from": {"run": encode(parent)}})
    ended_run(lab, child, "failed", kind="parent", reason="its parent")
    return [
        ended(lab, tiny(seed=0), "completed"),
        ended(lab, tiny(seed=1), "diverged", kind="diverged"),
        ended(lab, tiny(seed=2), "failed", kind="exception", reason="RuntimeError: x\nmore"),
        ended(lab, parent, "failed", kind="hung", reason="too large"),
        Task(child),
    ]


def test_only_the_failed_are_taken_up_and_their_record_stays(lab: Lab, tasks: list[Task]) -> None:
    assert failed_tasks(lab, tasks) == tasks[2:]
    for task in failed_tasks(lab, tasks):
        reopen(lab, task)
    states = [lab.run(task.run).result() for task in tasks]
    assert [result is None for result in states] == [False, False, True, True, True]
    (attempt,) = lab.run_of(tasks[3].spec).attempts.read()
    assert attempt.ended == "hung" and attempt.forgiven


@pytest.mark.parametrize(
    ("kinds", "taken"),
    [
        ([], [2, 3, 4, 5]),
        (["hung"], [3, 4]),  # with the run that failed for it, not one that failed by itself
        (["exception"], [2, 5]),
        (["died"], []),
        (["parent"], [4]),
    ],
)
def test_of_a_kind_are_taken_up_with_the_runs_that_failed_for_them(
    lab: Lab, tasks: list[Task], kinds: list[str], taken: list[int]
) -> None:
    child = decode(RunSpec, {**encode(tasks[4].spec), "seed": 9})
    tasks = [*tasks, ended(lab, child, "failed", kind="exception")]
    assert failed_tasks(lab, tasks, kinds) == [tasks[k] for k in taken]
    assert failed_tasks(lab, [tasks[4]], ["hung"]) == []  # its parent is of another sweep
    with pytest.raises(UserError, match="no kind of failure 'hungg', did you mean 'hung'"):
        failed_tasks(lab, tasks, ["hungg"])


def test_a_failure_without_a_kind_on_record_is_an_exception(lab: Lab) -> None:
    task = ended(lab, tiny(), "failed")
    assert failed_kind(lab.run(task.run)) == "exception"
    assert failed_tasks(lab, [task], ["exception"]) == [task]
    assert failed_kind(lab.run_of(tiny(seed=1))) is None


def test_a_run_that_another_process_works_on_is_not_reopened(lab: Lab, tasks: list[Task]) -> None:
    with lab.run(tasks[2].run).lock(), pytest.raises(Busy):
        reopen(lab, tasks[2])
    assert failed_kind(lab.run(tasks[2].run)) == "exception"
