"""The README keeps its promises: its tree is the code's, its links lead somewhere."""

from __future__ import annotations

import re
from pathlib import Path

from tests.readme_tree import PACKAGES, ROOT, caption, written


def test_the_tree_is_the_code() -> None:
    readme = (ROOT / "README.md").read_text()
    assert readme == written(readme), "run: python tests/readme_tree.py"


def test_every_module_opens_with_one_sentence() -> None:
    modules = [path for package in PACKAGES for path in (ROOT / package).rglob("*.py")]
    assert len(modules) > 50
    assert [str(path) for path in modules if not 10 < len(caption(path)) < 110] == []


def test_no_link_is_dead() -> None:
    pages = [ROOT / "README.md", *(ROOT / "docs").rglob("*.md"), *ROOT.glob("benchmarks/*.md")]
    for page in pages:
        for link in re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", page.read_text()):
            assert link.startswith("http") or (page.parent / link).exists(), (page.name, link)


def test_no_module_has_a_name_that_says_nothing() -> None:
    names = {path.stem for package in PACKAGES for path in (ROOT / package).rglob("*.py")}
    assert not names & {"utils", "util", "helpers", "helper", "common", "misc", "base"}


def test_shipped_yaml_opens_with_its_question_and_command() -> None:
    files = [*(ROOT / "sweeps").glob("*.yaml"), *(ROOT / "experiments").glob("*.yaml")]
    for path in files:
        head = [line for line in path.read_text().splitlines() if line.startswith("#")]
        assert "?" in head[0], path
        assert any("tread-lab" in line and Path(path).stem in line for line in head), path
