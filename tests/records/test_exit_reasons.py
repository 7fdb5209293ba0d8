"""Claims about failure kinds: what follows from each, and which exception is of which kind."""

from __future__ import annotations

import errno
import re

import pytest
import torch

from tread_lab.cli import _parser
from tread_lab.records.durable import DiskFull
from tread_lab.records.exit_reasons import EXIT_REASONS, FAILURES, kind_of
from tread_lab.specs.errors import UserError


def test_every_kind_says_all_that_follows_from_it() -> None:
    follows = {
        kind: (exit_reason.tries, exit_reason.fails, exit_reason.wrong, exit_reason.whole_device)
        for kind, exit_reason in EXIT_REASONS.items()
    }
    assert follows == {
        "completed": (None, False, False, False),
        "diverged": (None, False, True, False),
        "disk": (None, False, True, False),
        "mismatch": (None, False, True, False),
        "mistake": (None, False, True, False),
        "interrupted": (None, False, False, False),
        "oom": (2, True, True, True),
        "exception": (2, True, True, False),
        "died": (3, True, True, False),
        "hung": (2, True, True, False),
        "lost": (None, False, True, False),
        "orphaned": (None, False, True, False),
        "parent": (None, True, True, False),
    }
    assert all(exit_reason.sentence for exit_reason in EXIT_REASONS.values())


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (ValueError("x"), "exception"),
        (RuntimeError("x"), "exception"),
        (OSError(errno.EIO, "x"), "exception"),
        (OSError(errno.ENOSPC, "x"), "disk"),
        (OSError(errno.EDQUOT, "x"), "disk"),
        (DiskFull("x"), "disk"),
        (UserError("out of memory"), "mistake"),
        (MemoryError(), "oom"),
        (type("Short", (MemoryError,), {})(), "oom"),
        (RuntimeError("CUDA error: Out of memory"), "oom"),
        (RuntimeError("DefaultCPUAllocator: not enough memory: 8 bytes"), "oom"),
        (torch.OutOfMemoryError("x"), "oom"),
        (RuntimeError("[enforce fail] DefaultCPUAllocator: can't allocate memory"), "oom"),
        (ValueError("out of memory"), "exception"),
        (KeyboardInterrupt(), "interrupted"),
        (GeneratorExit(), "interrupted"),
    ],
)
def test_an_exception_is_of_one_kind(error: BaseException, kind: str) -> None:
    assert kind_of(error) == kind


def test_the_command_line_names_the_kinds_that_a_run_can_fail_of() -> None:
    assert sorted(FAILURES) == ["died", "exception", "hung", "oom", "parent"]
    (kinds,) = (action.choices for action in _parser()._actions if action.dest == "command")
    (option,) = (a for a in kinds["sweep"]._actions if a.dest == "retry_failed")  # type: ignore[index]
    named = re.findall(r"\w+", option.help.partition(" of ")[2].partition(";")[0])
    assert sorted(named) == sorted(FAILURES)
