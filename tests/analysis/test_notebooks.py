"""Every notebook runs on a finished sweep; stored outputs have the numbers of the documentation.

TREAD_LAB_STORED=LAB, a lab with the sweeps of `make figures`, compares all stored texts with a new
execution.
"""

from __future__ import annotations

import base64
import os
import re
from pathlib import Path
from typing import Any

import pytest

from tests.four_sweeps import ENDINGS
from tests.synthetic import Synthetic, small, write_sweep

nbformat = pytest.importorskip("nbformat")
nbclient = pytest.importorskip("nbclient")
ROOT = Path(__file__).parents[2]
PATHS = sorted((ROOT / "analysis" / "notebooks").glob("*.ipynb"))
README = ROOT / "README.md"


def shown(notebook: Any, kind: str) -> list[str]:
    """Everything of one media type that the cells show; `text` is what they print."""
    outputs = [out for cell in notebook.cells for out in cell.get("outputs", ())]
    found = (o.get("text") if kind == "text" else o.get("data", {}).get(kind) for o in outputs)
    return [content for content in found if content is not None]


@pytest.fixture(scope="module")
def executed(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """The notebooks executed in one kernel on a synthetic lab."""
    root = tmp_path_factory.mktemp("notebooks")
    write_sweep(root, Synthetic(name="route_placement", states=ENDINGS, pictures=True))
    write_sweep(root, small(name="selection_rate", routes=((2, 8),), rates=(0.25, 0.5, 0.75)))
    for name in ("backbones", "placement_rule"):
        write_sweep(root, small(name=name))
    budgets = {"routes": ((2, 8),), "budgets": (100, 200, 400), "guided": True}
    write_sweep(root, small(name="over_training", **budgets))
    write_sweep(root, small(name="guidance", routes=((2, 8),), guided=True))
    return execute_all(root)


def execute_all(root: Path) -> dict[str, Any]:
    """Execute the notebooks whose sweeps are in a lab."""
    notebooks = {path.stem: nbformat.read(path, as_version=4) for path in PATHS}
    notebooks = {name: one for name, one in notebooks.items() if has_sweep(root, one)}
    client = nbclient.NotebookClient(nbformat.v4.new_notebook(), kernel_name="python3", timeout=300)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TREAD_LAB_ROOT", str(root))
        with client.setup_kernel():
            for notebook in notebooks.values():
                client.nb = notebook
                client.kc.execute("get_ipython().reset()", silent=True)
                for index, cell in enumerate(notebook.cells):
                    client.execute_cell(cell, index)
    return notebooks


def has_sweep(root: Path, notebook: Any) -> bool:
    asked = re.search(r'open_sweep\("(\w+)"\)', notebook.cells[1].source)
    return asked is None or (root / "sweeps" / asked[1]).exists()


@pytest.mark.skipif("TREAD_LAB_STORED" not in os.environ, reason="names no lab to execute on")
def test_stored_texts_equal_a_new_execution() -> None:
    fresh = execute_all(Path(os.environ["TREAD_LAB_STORED"]))
    assert "fig8_route_placement" in fresh
    for path in PATHS:
        stored = nbformat.read(path, as_version=4)
        for kind in ("text", "text/markdown") if path.stem in fresh else ():
            old, new = ("".join(shown(one, kind)) for one in (stored, fresh[path.stem]))
            assert old == new, path.stem


def test_stored_gaps_are_those_of_the_readme() -> None:
    gaps = re.findall(r"^ \d+ +(\d+)->(\d+) s=0.5 +(\S+ ± \S+)", README.read_text(), re.M)
    assert len(gaps) == 2
    stored = {path.stem: nbformat.read(path, as_version=4) for path in PATHS}
    (placement,) = shown(stored["fig8_route_placement"], "text")
    (data,) = shown(stored["table4_data"], "text")
    for (start, end, gap), said in zip(gaps, (placement, data)):
        assert f"{start}\N{RIGHTWARDS ARROW}{end}" in said and gap in said


@pytest.mark.slow
@pytest.mark.parametrize("name", [path.stem for path in PATHS])
def test_notebook_runs_on_a_finished_sweep(name: str, executed: dict[str, Any]) -> None:
    notebook = executed[name]
    assert shown(notebook, "image/png") or shown(notebook, "text/markdown")
    assert notebook.cells[-1].outputs[0].text.strip(), "the last cell reads the result"


@pytest.mark.slow
def test_notebooks_tell_the_numbers_of_records(executed: dict[str, Any]) -> None:
    (told,) = shown(executed["fig8_route_placement"], "text")
    assert "Best mean: 2\N{RIGHTWARDS ARROW}8" in told and "\N{MINUS SIGN}0.0015" in told
    (told,) = shown(executed["teaser_time_to_equal"], "text")
    assert "two seeds or more" in told


@pytest.mark.parametrize("path", PATHS, ids=lambda path: path.stem)
def test_stored_notebook_ran_in_order(path: Path) -> None:
    content = path.read_text(encoding="utf-8")
    notebook = nbformat.reads(content, as_version=4)
    title = notebook.cells[0].source.splitlines()[0]
    assert title.startswith("# ") and title.endswith("?")
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    assert [cell.execution_count for cell in code] == list(range(1, len(code) + 1))
    outputs = [out for cell in code for out in cell.outputs]
    assert not [o for o in outputs if o.output_type == "error" or o.get("name") == "stderr"]
    text = re.sub(r'"image/png": "[^"]*"', "", content)
    assert not re.search(r"/(home|root|tmp|work|Users|var)/|0x[0-9a-f]{8}|Traceback", text)
    assert len(content) < 400_000
    for picture in shown(notebook, "image/png"):
        assert base64.b64decode(picture).startswith(b"\x89PNG")
