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


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_whole_sweep_files_load(page: Path, in_folder: Path) -> None:
    for block in blocks(page):
        named = re.match(r"# (\w+\.yaml)\n", block.text)
        if block.language == "yaml" and named:
            Path(named[1]).write_text(block.text)
            load.load_sweep(named[1])


@pytest.mark.slow
@pytest.mark.skipif(
    importlib.util.find_spec("material") is None, reason="mkdocs-material is not installed"
)
def test_site_builds_without_a_warning(tmp_path: Path) -> None:
    build = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(tmp_path)]
    built = subprocess.run([*build, "-f", str(SITE)], capture_output=True, text=True)
    assert built.returncode == 0, built.stderr


EXAMPLES = [b for b in blocks(DOCS / "sweep_grammar.md") if "experiment: tiny" in b.text]


@pytest.mark.parametrize("block", EXAMPLES, ids=lambda b: b.text.splitlines()[0].strip("# "))
def test_grammar_example_makes_its_claim(block: Block, in_folder: Path) -> None:
    Path("example.yaml").write_text(block.text)
    _, sweep, experiment = load.load_sweep("example.yaml")
    found = make_plan("example", sweep, experiment)
    roles = Counter(trial.role for trial in found.trials)
    counts = {
        "trials": roles["trial"],
        "baselines": roles["baseline"],
        "controls": roles["control"],
        "holes": sum(hole.count for hole in found.excluded),
        "evaluations": len(found.evaluations),
    }
    said = {name: int(k) for k, name in re.findall(r"(\d+) (\w+)", block.text.splitlines()[0])}
    assert said and {name: counts[name] for name in said} == said
    assert counts["holes"] == 0 or "holes" in said


def test_the_pages_are_short() -> None:
    """At most 15,000 words in docs, 700 in the README, 5,000 in these and the first pages."""
    words = {page: len(page.read_text().split()) for page in PAGES}
    people = [words[DOCS / name] for name in FOR_PEOPLE]
    assert words[ROOT / "README.md"] <= 700 and max(people) <= 1100
    assert words[ROOT / "README.md"] + sum(people) <= 5000
    assert sum(words.values()) - words[ROOT / "README.md"] <= 15_000
