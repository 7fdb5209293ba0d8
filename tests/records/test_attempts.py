"""Claims about attempts at a run: how each ended, and what follows from it."""

from __future__ import annotations

import errno
import json
import re
from pathlib import Path

import pytest
import torch

from tread_lab.cli import _parser
from tread_lab.records.attempts import (
    FAILURES,
    Attempts,
    ProcessLost,
    attempts_of,
    kind_of,
)
from tread_lab.records.durable import DiskFull
from tread_lab.records.log import append_line
from tread_lab.specs.errors import UserError


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
def test_an_exception_is_of_one_kind(error: BaseException, kind: str) -> None:
    assert kind_of(error) == kind


def test_the_command_line_names_the_kinds_that_a_run_can_fail_of() -> None:
    assert sorted(FAILURES) == ["died", "exception", "hung", "parent"]
    (kinds,) = (action.choices for action in _parser()._actions if action.dest == "command")
    (option,) = (a for a in kinds["sweep"]._actions if a.dest == "retry_failed")  # type: ignore[index]
    named = re.findall(r"\w+", option.help.partition(" of ")[2].partition(";")[0])
    assert sorted(named) == sorted(FAILURES)


def test_forgiving_forgives_every_earlier_attempt(tmp_path: Path) -> None:
    attempts = Attempts(tmp_path / "attempts.jsonl")
    for _ in range(3):
        attempts.close(attempts.open(), "exception")
    attempts.open(runs_per_device=3)
    attempts.reset_retries()
    attempts.open()
    forgiven = [(a.ended, a.forgiven, a.runs_per_device) for a in attempts.read()]
    assert forgiven == [("exception", True, 1)] * 3 + [("", True, 3), ("", False, 1)]


def test_attempts_are_in_order_of_their_numbers_whatever_the_lines_say() -> None:
    lines = [{"event": "opened", "n": n, "driver": f"d{n}"} for n in (2, 3, 1)]
    assert [(a.n, a.driver) for a in attempts_of(lines)] == [(1, "d1"), (2, "d2"), (3, "d3")]
    assert {len(a.fingerprint) for a in attempts_of(lines)} == {0}  # an early version said none


def test_the_record_has_the_words_of_earlier_versions_and_may_have_others(
    tmp_path: Path,
) -> None:
    attempts = Attempts(tmp_path / "attempts.jsonl")
    attempts.open(runs_per_device=3, fingerprint={"code": "a"})
    line = json.loads(attempts.path.read_text())
    assert (line["packed"], line["made_with"]) == (3, {"code": "a"})
    (only,) = attempts.read()
    assert (only.runs_per_device, only.fingerprint) == (3, {"code": "a"})
    closed = attempts.close(only, "oom", phase="evaluate", reason="too large")
    append_line(attempts.path, {"event": "closed", "n": 1, "weather": "fine"})  # later versions'
    assert attempts.read() == [closed]
    assert (closed.ended, closed.phase, closed.reason) == ("oom", "evaluate", "too large")
