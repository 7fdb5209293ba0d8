"""What the documentation names is there: commands parse, sweeps load, pictures are used."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from tests.docs.pages import DOCS, PAGES, ROOT, Block, blocks, commands
from tread_lab.cli import parse
from tread_lab.config import load

FOR_PEOPLE = (
    "first_hour.md",
    "your_sweep.md",
    "what_numbers_mean.md",
    "your_data_and_gpus.md",
    "add_your_own.md",
)
COMMANDS = [
    (page.name, line)
    for page in PAGES
    for block in blocks(page)
    if not block.language and not block.text.startswith("tread_lab/")  # the README's tree
    for line in commands(block.text)
]


@pytest.mark.parametrize(
    ("page", "line"), [c for c in COMMANDS if c[1].startswith("tread-lab ")], ids=str
)
def test_a_command_parses(page: str, line: str) -> None:
    own = re.split(" > |; ", line)[0]  # the rest is the shell's
    parse(shlex.split(own.removeprefix("tread-lab ")))


def test_other_commands_are_known_programs() -> None:
    known = {"make", "source", "export", "cp", "ray", "docker", "kubectl", "pip", "python"}
    known |= {"jupyter", "sbatch", "tread-lab"}
    assert {line.split()[0] for _, line in COMMANDS} <= known


def test_targets_of_make_are_there() -> None:
    makefile = (ROOT / "Makefile").read_text()
    told = {line for _, line in COMMANDS if line.startswith("make ")}
    told |= {found for page in PAGES for found in re.findall(r"`(make \w+)`", page.read_text())}
    for line in told:
        assert re.search(rf"^{line.split()[1]}:", makefile, re.M), line


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_whole_sweep_files_load(page: Path, in_folder: Path) -> None:
    for block in blocks(page):
        named = re.match(r"# (\w+\.yaml)\n", block.text)
        if block.language == "yaml" and named:
            Path(named[1]).write_text(block.text)
            load.load_sweep(named[1])


def test_the_index_names_every_page() -> None:
    index = (DOCS / "README.md").read_text()
    for page in DOCS.glob("*.md"):
        assert page.name == "README.md" or f"({page.name})" in index, page.name


GENERATED = ("faults.md",)  # whole pages that the code writes


def test_the_pages_are_short() -> None:
    """At most 18,000 words by hand, 6,000 of them for people; each of these pages has a picture."""
    texts = {
        page.name: page.read_text() for page in PAGES if page.name not in ("README.md", *GENERATED)
    }
    people = [texts[name] for name in FOR_PEOPLE]
    assert all(words(text) <= 1200 and "](pictures/" in text for text in people)
    readme, index = (ROOT / "README.md").read_text(), (DOCS / "README.md").read_text()
    assert sum(map(words, [readme, *people])) <= 6000
    others = [(ROOT / name).read_text() for name in ("CONTRIBUTING.md", "benchmarks/README.md")]
    assert sum(map(words, [readme, index, *texts.values(), *others])) <= 18_000


def words(text: str) -> int:
    """Words of a page without the parts that are generated from the code."""
    return len(re.sub(r"<!-- (\w+) -->.*<!-- /\1 -->", "", text, flags=re.S).split())


def test_every_picture_is_used_and_small() -> None:
    text = "".join(page.read_text() for page in PAGES)
    for picture in (DOCS / "pictures").iterdir():
        assert f"pictures/{picture.name}" in text, picture.name
        assert picture.stat().st_size < 200_000, picture.name


def test_a_block_of_commands_is_read_as_a_shell_does() -> None:
    block = Block("", "", "# remark\ntread-lab sweep a.yaml \\\n  seeds=[0]   # why\n")
    assert commands(block.text) == ["tread-lab sweep a.yaml    seeds=[0]"]
