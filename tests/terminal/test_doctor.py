"""What `doctor` shows: files and why they are not here, and what is wrong, the worst first."""

from __future__ import annotations

import pytest

from tests.terminal.conftest import Screen
from tread_lab.prepare.required_files import REQUIRED, STANDS_IN
from tread_lab.sweep.execution.health import UNAVAILABLE, WARNING, WRONG, Finding
from tread_lab.terminal.doctor import show_files, show_findings


def test_what_is_wrong_is_told_the_worst_first_with_all_nodes_that_share_it(screen: Screen) -> None:
    nodes = [f"n{k}" for k in range(6)]
    shared = [Finding(node, "disk", "the disk is nearly full", WARNING) for node in nodes]
    wrong = [Finding(node, "code", "the code is another", WRONG) for node in nodes[:4]]
    silent = Finding("n5", "answer", "it does not answer", UNAVAILABLE)
    screen("six nodes", show_findings, [*shared, *wrong, silent])
    screen("none", show_findings, [])


def test_a_file_that_is_no_such_thing_says_why(capsys: pytest.CaptureFixture[str]) -> None:
    first, second, third, *others = REQUIRED
    unset = {name: f"{REQUIRED[name].named_by} is not set" for name in others}
    show_files({first: "", second: STANDS_IN, third: "it holds no weights", **unset})
    lines = capsys.readouterr().out.splitlines()
    assert lines[1 + len(REQUIRED) :][-1] == f"{third}: it holds no weights"
    assert [line.split()[1] for line in lines[1:4]] == ["yes", "stand-in", "no"]
