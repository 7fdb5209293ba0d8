"""Headers of shipped files are true: each command plans the network, route and cost it states."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.docs.headers import FILES, planned, stated, tasks_of
from tests.docs.pages import PAGES, blocks, commands
from tread_lab.config import UserError

HOW = "run: python -m tests.docs.headers, and look at what has changed"


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_a_header_says_what_its_commands_plan(path: Path) -> None:
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


def route_ends(tree: Any) -> Iterator[Any]:
    """Every end of a route in a file, as it is written."""
    if isinstance(tree, dict):
        for key, value in tree.items():
            if key == "end":
                yield from value if isinstance(value, list) else [value]
            else:
                yield from route_ends(value)
    elif isinstance(tree, list):
        for value in tree:
            yield from route_ends(value)
    elif isinstance(tree, str) and "->" in tree and not re.match(r"0\.?\d*->0|0->0", tree):
        yield tree.partition("->")[2].partition(" by ")[0].strip()


def is_a_rule(end: Any) -> bool:
    """Whether an end means the same place at every depth: counted from the end, or a fraction."""
    return re.fullmatch(r"B-\d+|\d+/\d+|0\.\d+", str(end)) is not None


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_routes_are_rules_in_the_depth_or_the_depth_is_fixed(path: Path) -> None:
    """`2->8` is the recommended route at 12 blocks and a short one at 28."""
    tree = yaml.safe_load(path.read_text())
    numbers = [end for end in route_ends(tree) if not is_a_rule(end)]
    where = tree.get("where", [])
    rules = [where] if isinstance(where, str) else where
    assert not numbers or "model.depth == 12" in rules, numbers
    for command in stated(path.read_text()):
        for end in re.findall(r"--route \S*?->([^\s\"']+)|\bend: ?([^,}\s]+)", command.line):
            assert is_a_rule("".join(end)), command.line


@pytest.mark.parametrize(
    "page",
    [page for page in PAGES if page.name != "add_your_own.md"],  # end_to_end/test_plugins.py
    ids=lambda page: page.name,
)
def test_the_commands_of_a_page_plan(page: Path, in_folder: Path) -> None:
    for block in blocks(page):
        named = re.match(r"# (\w+\.yaml)\n", block.text)
        if block.language == "yaml" and (block.title or named):
            Path(block.title or named[1]).write_text(block.text)  # type: ignore[index]
    for line in (line for b in blocks(page) if not b.language for line in commands(b.text)):
        if re.match(r"tread-lab (sweep|train) ", line):
            assert planned(line)


def test_the_grid_of_12_blocks_is_refused_at_28_with_the_reason() -> None:
    line = "tread-lab sweep route_placement.yaml experiment=xl2_imagenet256 data.path=LATENTS"
    with pytest.raises(UserError, match=r"16 excluded by where: model\.depth == 12"):
        tasks_of(line)
