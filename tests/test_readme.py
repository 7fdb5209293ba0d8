"""README and architecture page are true: they name every module, links and paths exist."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.readme_tree import DOCS, GENERATED, ROOT, caption, written

PAGE = DOCS / "architecture.md"
PACKAGES = ("tread_lab", "analysis", "dashboards")  # the last two are linked into the first


@pytest.mark.parametrize("name", GENERATED)
def test_what_is_generated_of_a_page_is_the_codes(name: str) -> None:
    assert (DOCS / name).read_text() == written(name), "run: python tests/readme_tree.py"


def test_architecture_names_every_module_and_registry() -> None:
    """The page by which a reader finds the file to change."""
    text = PAGE.read_text()
    modules = [
        path
        for package in PACKAGES
        for path in (ROOT / package).rglob("*.py")
        if not path.stem.startswith("__") and "methods" not in path.parts
    ]
    figures = ROOT / "analysis/figures"
    assert [p.stem for p in modules if p.parent != figures and p.stem not in text] == []
    for name, file in re.findall(r"`([A-Z]+)`(?:,[^|`]*`[A-Z]+`)? in `([\w/.]+\.py)`", text):
        path = ROOT / "tread_lab" / file
        assert name in path.read_text(), (name, file)
    for file in re.findall(r"`((?:\w+/)+\w+\.py)`", text):
        assert (ROOT / "tread_lab" / file).exists(), file


def test_every_module_opens_with_one_sentence() -> None:
    modules = [path for package in PACKAGES for path in (ROOT / package).rglob("*.py")]
    assert len(modules) > 50
    assert [str(path) for path in modules if not 10 < len(caption(path)) < 110] == []


def test_no_link_is_dead() -> None:
    pages = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *ROOT.glob("benchmarks/*.md")]
    for page in pages:
        for link, anchor in re.findall(r"\]\(([^)#]*)(?:#([^)]*))?\)", page.read_text()):
            target = page.parent / link if link else page
            assert link.startswith("http") or target.exists(), (page.name, link)
            if anchor and target.suffix == ".md":
                assert anchor in anchors(target), (page.name, link, anchor)


def anchors(page: Path) -> set[str]:
    """The names by which the headings of a page are linked."""
    heads = re.findall(r"^#+ (.+)$", page.read_text(), re.M)
    return {re.sub(r"[^\w\- ]", "", head.lower()).replace(" ", "-") for head in heads}


def test_no_module_has_a_name_that_says_nothing() -> None:
    names = {path.stem for package in PACKAGES for path in (ROOT / package).rglob("*.py")}
    assert not names & {"utils", "util", "helpers", "helper", "common", "misc", "base"}


def test_shipped_yaml_opens_with_its_question_and_command() -> None:
    files = [*(ROOT / "sweeps").glob("*.yaml"), *(ROOT / "experiments").glob("*.yaml")]
    for path in files:
        head = [line for line in path.read_text().splitlines() if line.startswith("#")]
        assert "?" in head[0], path
        assert any("tread-lab" in line and Path(path).stem in line for line in head), path
