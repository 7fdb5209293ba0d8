"""Attempts, states and the status of runs."""

from __future__ import annotations

import errno
import os
from typing import Any

import pytest
import torch

from tread_lab.config.errors import UserError
from tread_lab.records.durable import DiskFull
from tread_lab.records.lab import Lab, run_states, run_status
from tread_lab.records.run_state import ProcessLost, RunState, attempts_of, kind_of


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (OSError(errno.EIO, "x"), "exception"),
        (OSError(errno.ENOSPC, "x"), "disk"),
        (DiskFull("x"), "disk"),
        (UserError("out of memory"), "mistake"),
        (MemoryError(), "oom"),
        (RuntimeError("CUDA error: Out of memory"), "oom"),
        (RuntimeError("DefaultCPUAllocator: not enough memory: 8 bytes"), "oom"),
        (torch.OutOfMemoryError("x"), "oom"),
        (RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate`"), "oom"),
        (ProcessLost("rank 1 of the run is lost: OutOfMemoryError: CUDA"), "oom"),
        (RuntimeError("[enforce fail] DefaultCPUAllocator: can't allocate memory"), "oom"),
        (ProcessLost("rank 1 of the run is lost: killed"), "died"),
        (ValueError("out of memory"), "exception"),
        (KeyboardInterrupt(), "interrupted"),
    ],
)
def test_exception_is_of_one_kind(error: BaseException, kind: str) -> None:
    assert kind_of(error) == kind


def test_attempts_are_ordered_by_number(lab: Lab) -> None:
    lines = [{"n": n, "driver": f"d{n}"} for n in (2, 3, 1)]
    assert [(a.n, a.driver) for a in attempts_of(lines)] == [(1, "d1"), (2, "d2"), (3, "d3")]
    run = lab.run("abc")
    opened = run.open_attempt(driver="d", runs_per_device=3, fingerprint={"code": "a"})
    assert run.attempts() == [opened] and opened.ended == ""
    closed = run.close_attempt(opened, "oom", reason="too large")
    assert run.attempts() == [closed] and (closed.ended, closed.reason) == ("oom", "too large")
    assert run.open_attempt().n == 2


def test_state_follows_result_lock_and_log(lab: Lab) -> None:
    run = lab.run("abc")
    assert run.state() == "pending" and not run.locked and run.step() == 0
    with run.lock():
        assert run.state() == "running" and run.locked
    assert run.path.exists() and run.state() == "pending"
    with run.log() as log:
        for step in (1, 3, 3):  # once more
            log(step, loss=1.0)
    assert (run.state(), run.step()) == ("interrupted", 3)
    run.finish(RunState.DIVERGED, step=2, reason="nan")
    assert (run.state(), run.step(), (run.result() or {})["reason"]) == ("diverged", 2, "nan")
    with run.lock():
        assert run.state() == "diverged"
    run.reopen()
    run.reopen()
    assert run.state() == "interrupted"


def test_status_moves_with_every_record(lab: Lab) -> None:
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
    for name in ("b", "c"):
        with lab.run(name).log() as log:
            log(1, loss=1.0)
    lab.run("d").finish(RunState.FAILED, kind="exception")
    runs = ["a", "b", "c", "d"]
    seen = {"a": "pending", "b": "interrupted", "c": "interrupted", "d": "failed"}
    assert run_states(lab, runs) == seen
    stopped = dict.fromkeys(("a", "c", "d"), 1)
    assert run_states(lab, runs, stopped) == {**seen, "c": "stopped"}


@pytest.mark.parametrize(
    ("endings", "result", "kind", "reason"),
    [
        (["exception boom", "interrupted"], None, "", ""),  # the last attempt alone counts
        (["exception boom", "oom no memory\nat all"], None, "oom", "no memory"),
        (
            ["oom no memory"],
            {"state": RunState.FAILED, "kind": "parent", "reason": "lost"},
            "parent",
            "lost",
        ),
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


def test_only_stopping_sweep_sees_stopped(lab: Lab) -> None:
    run = lab.run("abc")
    with run.log() as log:
        log(7, loss=1.0)
    stopped = {"abc": 5}
    assert (run_status(run).state, run_status(run).step) == (RunState.INTERRUPTED, 7)
    seen = run_status(run, stopped)
    assert (seen.state, seen.kind, seen.step) == (RunState.STOPPED, "early", 5)
    run.finish(RunState.COMPLETED, step=9)
    assert run_status(run, stopped).state is RunState.COMPLETED
