"""The Python page shows what its snippets return, and `import tread_lab` stays instant."""

from __future__ import annotations

import doctest
import subprocess
import sys
from pathlib import Path

import pytest

from tests.docs.pages import DOCS, blocks
from tests.synthetic import small, write_sweep


@pytest.mark.task(61)
def test_snippets_return_what_pages_say(in_folder: Path) -> None:
    write_sweep(in_folder / "lab", small(name="route_placement", seeds=(0, 1)))
    snippets = "\n".join(b.text for b in blocks(DOCS / "python.md") if b.language == "python")
    test = doctest.DocTestParser().get_doctest(snippets, {}, "python.md", None, 0)
    assert len(test.examples) > 10
    report: list[str] = []
    doctest.DocTestRunner().run(test, out=report.append)
    assert not report, "".join(report)


def test_import_is_light() -> None:
    code = "import sys, tread_lab; print(sorted({m.split('.')[0] for m in sys.modules}))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert not {"torch", "pandas", "numpy"} & set(done.stdout.split("'"))
