"""What the documentation names is there: commands parse, sweeps load, examples plan, it builds."""

from __future__ import annotations

import importlib.util
import re
import shlex
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest
import yaml

from tests.docs.pages import DOCS, PAGES, ROOT, Block, blocks, commands
from tread_lab.cli.main import parse
from tread_lab.config import load
from tread_lab.sweep.plan import make_plan

SITE = ROOT / "mkdocs.yml"

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
assert COMMANDS


@pytest.mark.parametrize(
    ("page", "line"), [c for c in COMMANDS if c[1].startswith("tread-lab ")], ids=str
)
def test_a_command_parses(page: str, line: str) -> None:
    own = re.split(" > |; ", line)[0]  # the rest is the shell's
    parse(shlex.split(own.removeprefix("tread-lab ")))


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


def test_every_page_has_its_place_and_the_first_five_are_for_people() -> None:
    index, first, *others = yaml.safe_load(SITE.read_text())["nav"]
    assert (index, first) == ({"Documentation": "README.md"}, {"First": list(FOR_PEOPLE)})
    named = [page for group in others for pages in group.values() for page in pages]
    pages = {path.name for path in DOCS.glob("*.md")}
    assert {"README.md", *FOR_PEOPLE, *named} == pages
    index = (DOCS / "README.md").read_text()
    assert [name for name in pages - {"README.md"} if f"({name})" not in index] == []


@pytest.mark.slow
@pytest.mark.skipif(
    importlib.util.find_spec("material") is None, reason="mkdocs-material is not installed"
)
def test_the_site_builds_without_a_warning(tmp_path: Path) -> None:
    build = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(tmp_path)]
    built = subprocess.run([*build, "-f", str(SITE)], capture_output=True, text=True)
    assert built.returncode == 0, built.stderr


EXAMPLES = [b for b in blocks(DOCS / "sweep_grammar.md") if "experiment: tiny" in b.text]


@pytest.mark.parametrize("block", EXAMPLES, ids=lambda b: b.text.splitlines()[0].strip("# "))
def test_an_example_of_the_grammar_makes_what_its_first_line_says(
    block: Block, in_folder: Path
) -> None:
    Path("example.yaml").write_text(block.text)
    _, sweep, experiment = load.load_sweep("example.yaml")
    found = make_plan("example", sweep, experiment)
    roles = Counter(trial.role for trial in found.trials)
    counts = {
        "trials": roles["trial"],
        "baselines": roles["baseline"],
        "controls": roles["control"],
        "holes": sum(hole.count for hole in found.excluded),
        "duplicates": sum(s.count for s in found.duplicates if s.reason == "written again"),
        "evaluations": len(found.evaluations),
    }
    said = {name: int(k) for k, name in re.findall(r"(\d+) (\w+)", block.text.splitlines()[0])}
    assert said and {name: counts[name] for name in said} == said
    assert counts["holes"] == 0 or "holes" in said


def test_there_is_an_example_for_every_key_of_the_grammar() -> None:
    keys = {line.split(":")[0] for block in EXAMPLES for line in block.text.splitlines()}
    lists = {"axes", "variants", "trials", "where", "baseline", "match", "seeds", "sampler_axes"}
    assert keys >= lists


GENERATED = ("faults.md",)  # whole pages that the code writes


def test_the_pages_are_short() -> None:
    """At most 18,000 words by hand, 6,000 of them for people."""
    texts = {
        page.name: page.read_text() for page in PAGES if page.name not in ("README.md", *GENERATED)
    }
    people = [texts[name] for name in FOR_PEOPLE]
    assert all(words(text) <= 1200 for text in people)
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
