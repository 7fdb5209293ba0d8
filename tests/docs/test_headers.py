"""Headers of shipped files are true: each command plans the network, route and cost it states."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.docs.headers import FILES, planned, stated
from tests.docs.pages import PAGES, blocks, commands

HOW = "run: python -m tests.docs.headers, and look at what has changed"


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_header_states_its_plans(path: Path) -> None:
    """No command hides in prose, where nobody would compare it with its plan."""
    text = path.read_text()
    header = [line for line in text.splitlines() if line.startswith("#")]
    found = stated(text)
    assert found, f"{path.name}: no command in its header"
    named = sum(len(re.findall(r"tread-lab (?:sweep|train)", line)) for line in header)
    assert named == len(found)
    wrong = [
        f"{command.line}\n  says  {command.plan}\n  plans {plan}"
        for command in found
        if (plan := planned(command.line)) != command.plan
    ]
    assert not wrong, "\n".join([HOW, *wrong])


@pytest.mark.parametrize(
    "page",
    [page for page in PAGES if page.name != "add_your_own.md"],  # end_to_end/test_plugins.py
    ids=lambda page: page.name,
)
def test_commands_of_a_page_plan(page: Path, in_folder: Path) -> None:
    for block in blocks(page):
        named = re.match(r"# (\w+\.yaml)\n", block.text)
        if block.language == "yaml" and (block.title or named):
            Path(block.title or named[1]).write_text(block.text)  # type: ignore[index]
    for line in (line for b in blocks(page) if not b.language for line in commands(b.text)):
        if re.match(r"tread-lab (sweep|train) ", line):
            assert planned(line)
