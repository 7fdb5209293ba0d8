"""Stored notebooks open with a question, ran in order, tell nothing of the machine."""

from __future__ import annotations

import ast
import base64
import importlib
import inspect
import re
from pathlib import Path

import pytest

from tests.analysis.notebooks.test_execute import PATHS, shown, stored


@pytest.mark.parametrize("path", PATHS, ids=lambda path: path.stem)
class TestStored:
    """What lies in the repository."""

    def test_it_asks_and_every_cell_ran_in_order(self, path: Path) -> None:
        head, *cells = stored(path)
        title = "".join(head["source"]).splitlines()[0]
        assert head["cell_type"] == "markdown" and title.startswith("# ") and title.endswith("?")
        code = [cell for cell in cells if cell["cell_type"] == "code"]
        assert [cell["execution_count"] for cell in code] == list(range(1, len(code) + 1))
        outputs = [out for cell in code for out in cell["outputs"]]
        assert not [out for out in outputs if out["output_type"] == "error"]
        assert not [out for out in outputs if out.get("name") == "stderr"]
        assert "".join(code[-1]["outputs"][0]["text"]).strip()

    def test_every_name_that_it_imports_and_uses_exists(self, path: Path) -> None:
        code = "\n".join("".join(c["source"]) for c in stored(path) if c["cell_type"] == "code")
        tree, modules = ast.parse(code), {}
        for node in (n for n in ast.walk(tree) if isinstance(n, ast.ImportFrom) and n.module):
            owner = importlib.import_module(node.module)
            for name in (alias.name for alias in node.names):
                if not hasattr(owner, name):
                    importlib.import_module(f"{node.module}.{name}")
                modules[name] = getattr(owner, name)
        for node in (n for n in ast.walk(tree) if isinstance(n, ast.Attribute)):
            owner = modules.get(node.value.id) if isinstance(node.value, ast.Name) else None
            assert not inspect.ismodule(owner) or hasattr(owner, node.attr), ast.unparse(node)

    def test_nothing_of_the_machine_is_in_it_and_its_pictures_are_whole(self, path: Path) -> None:
        content = path.read_text(encoding="utf-8")
        text = re.sub(r'"image/png": "[^"]*"', "", content)
        for strange in (r"/(home|root|tmp|work|Users|var)/", r"0x[0-9a-f]{8}", r"Traceback"):
            assert not re.search(strange, text), strange
        assert len(content) < 400_000
        for picture in shown(stored(path), "image/png"):
            assert base64.b64decode(picture).startswith(b"\x89PNG")
