"""Every notebook runs on a finished sweep; without one, a line says what to run."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

import tread_lab.analysis.notebooks.execute
from tests.four_sweeps import ENDINGS
from tests.synthetic import Synthetic, small, write_sweep
from tread_lab.analysis.notebooks.execute import NOTEBOOKS, execute, main
from tread_lab.records.lab import Lab

PATHS = sorted(NOTEBOOKS.glob("*.ipynb"))
Executed = dict[str, tuple[list[dict[str, Any]], str]]  # cells of a notebook, why it did not run


def stored(path: Path) -> list[dict[str, Any]]:
    return list(json.loads(path.read_text(encoding="utf-8"))["cells"])


def shown(cells: list[dict[str, Any]], kind: str) -> list[Any]:
    """Everything of one media type that the cells show; `text` is what they print."""
    found = []
    for cell in cells:
        for out in cell.get("outputs", ()):
            content = out.get("text") if kind == "text" else out.get("data", {}).get(kind)
            if content is not None:
                found.append("".join(content))
    return found


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Lab:
    """One lab with a small finished sweep of every kind that the notebooks ask for."""
    root = tmp_path_factory.mktemp("notebooks")
    placed = Synthetic(name="route_placement", states=ENDINGS, pictures=True)
    write_sweep(root, placed)
    write_sweep(root, small(name="selection_rate", routes=((2, 8),), rates=(0.25, 0.5, 0.75)))
    for name in ("backbones", "placement_rule"):
        write_sweep(root, small(name=name))
    budgets = {"routes": ((2, 8),), "budgets": (100, 200, 400), "guided": True}
    write_sweep(root, small(name="over_training", **budgets))
    return write_sweep(root, small(name="guidance", routes=((2, 8),), guided=True))


@pytest.fixture(scope="module")
def executed(finished: Lab) -> Executed:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TREAD_LAB_ROOT", str(finished.root))
        return {p.stem: (json.loads(text)["cells"], why) for p, text, why in execute(PATHS)}


@pytest.mark.slow
@pytest.mark.parametrize("name", [path.stem for path in PATHS])
def test_it_runs_on_a_finished_sweep(name: str, executed: Executed) -> None:
    cells, problem = executed[name]
    assert problem == ""
    assert shown(cells, "image/png") or shown(cells, "text/markdown")
    assert shown(cells[-1:], "text"), "the last cell reads the result"


@pytest.mark.slow
def test_the_reading_has_the_numbers_of_the_records(executed: Executed) -> None:
    (told,) = shown(executed["fig8_route_placement"][0], "text")
    assert "Best is 2\N{RIGHTWARDS ARROW}8" in told and "\N{MINUS SIGN}0.0015" in told
    (told,) = shown(executed["teaser_time_to_equal"][0], "text")
    assert "two seeds or more" in told


@pytest.mark.slow
def test_without_a_sweep_one_line_says_what_to_run(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The other one is stored byte for byte as it was: its numbers are of no sweep."""
    names = ("pareto.ipynb", "tableS7_parameters.ipynb")
    for name in names:
        shutil.copy(NOTEBOOKS / name, tmp_path)
    monkeypatch.setattr(tread_lab.analysis.notebooks.execute, "NOTEBOOKS", tmp_path)
    monkeypatch.setenv("TREAD_LAB_ROOT", str(tmp_path / "lab"))
    assert main([]) == 1
    first, second = capsys.readouterr().out.splitlines()
    assert first.startswith(
        "pareto: no sweep route_placement in this lab yet: run `tread-lab sweep"
    )
    assert second == "tableS7_parameters: stored"
    for name in names:
        assert (tmp_path / name).read_bytes() == (NOTEBOOKS / name).read_bytes()
