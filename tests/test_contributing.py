"""CONTRIBUTING is followed as it stands: its schedule is added and works."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest

from tests.docs.pages import ROOT, blocks, commands
from tests.docs.test_recipes import FEW, run, write

PAGE = ROOT / "CONTRIBUTING.md"


def test_every_path_in_it_exists() -> None:
    paths = re.findall(r"[`\"]((?:tread_lab|tests|docs)/[\w/.]+)[`\"]", PAGE.read_text())
    assert paths
    for path in paths:
        assert (ROOT / path).exists(), path


@pytest.mark.slow
def test_a_schedule_is_added_as_it_says(tmp_path: Path) -> None:
    for name in ("tread_lab", "analysis", "dashboards", "experiments", "sweeps", "tests"):
        ignored = shutil.ignore_patterns("__pycache__")
        shutil.copytree(ROOT / name, tmp_path / name, symlinks=True, ignore=ignored)
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    parts = blocks(PAGE)
    write(parts, tmp_path)
    tests, train = [line for part in parts[1:] if not part.language for line in commands(part.text)]
    run(tests, tmp_path, "-n0", PYTHONPATH=str(tmp_path))
    assert "completed" in run(train, tmp_path, FEW, PYTHONPATH=str(tmp_path))
    (folder,) = (tmp_path / "lab/runs").iterdir()
    assert "schedule: cosine" in (folder / "spec.yaml").read_text()
