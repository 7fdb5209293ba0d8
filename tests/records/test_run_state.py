"""Attempts, states and the status of runs."""

from __future__ import annotations

import errno

import pytest
import torch

from tread_lab.config.errors import UserError
from tread_lab.records.durable import DiskFull
from tread_lab.records.lab import Lab
from tread_lab.records.run_state import ProcessLost, RunState, kind_of


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
