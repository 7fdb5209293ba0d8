"""Exit codes are an interface: scripts rely on their numbers."""

from __future__ import annotations

from tread_lab.commands.exit_codes import DONE, EXIT_CODES, INTERRUPTED, UNFINISHED
from tread_lab.specs.errors import Unavailable, UserError
from tread_lab.sweep.execution.executor import Interrupted


def test_each_end_of_a_command_has_its_number() -> None:
    assert (DONE, UNFINISHED, INTERRUPTED, Interrupted.exit_code) == (0, 1, 130, 130)
    assert (UserError.exit_code, Unavailable.exit_code) == (2, 3)
    assert {code: meaning.split()[0] for code, meaning in EXIT_CODES.items()} == {
        0: "done", 1: "some", 2: "a", 3: "the", 130: "stopped"
    }  # fmt: skip
