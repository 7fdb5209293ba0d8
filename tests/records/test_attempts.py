"""How attempts at a run are recorded, and which kind of end an exception is."""

from __future__ import annotations

import errno

import pytest
import torch

from tread_lab.config.errors import UserError
from tread_lab.records.attempts import ProcessLost, attempts_of, kind_of
from tread_lab.records.durable import DiskFull
from tread_lab.records.lab import Lab


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
