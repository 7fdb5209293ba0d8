"""The documentation builds as a site without a warning; its five first pages stand first."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from tests.docs.pages import DOCS, ROOT
from tests.docs.test_pages import FOR_PEOPLE

SITE = ROOT / "mkdocs.yml"


def test_every_page_has_its_place_and_the_first_five_are_for_people() -> None:
    index, first, *others = yaml.safe_load(SITE.read_text())["nav"]
    assert (index, first) == ({"Documentation": "README.md"}, {"First": list(FOR_PEOPLE)})
    pages = [page for group in others for pages in group.values() for page in pages]
    assert {"README.md", *FOR_PEOPLE, *pages} == {path.name for path in DOCS.glob("*.md")}


@pytest.mark.slow
@pytest.mark.skipif(
    importlib.util.find_spec("material") is None, reason="mkdocs-material is not installed"
)
def test_the_site_builds_without_a_warning(tmp_path: Path) -> None:
    build = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(tmp_path)]
    built = subprocess.run([*build, "-f", str(SITE)], capture_output=True, text=True)
    assert built.returncode == 0, built.stderr
    page = (tmp_path / "troubleshooting" / "index.html").read_text()
    assert "no Chromium on the PATH" in page
