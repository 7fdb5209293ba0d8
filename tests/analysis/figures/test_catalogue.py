"""`write_figures` draws what the records support, whole files only, and reading needs no torch."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import tread_lab.analysis
from tests.synthetic import small, write_sweep
from tread_lab.analysis.figures.catalogue import all_figures, sweep_records, write_figures
from tread_lab.records.lab import Lab


@pytest.mark.parametrize("name", ["paper", "budget"])
def test_figures_folder_holds_what_was_written(
    name: str, request: pytest.FixtureRequest, undrawn: None
) -> None:
    lab: Lab = request.getfixturevalue(f"{name}_lab")
    (sweep,) = lab.sweeps()
    written = write_figures(lab, sweep)
    assert written and {*lab.sweep(sweep).figures.iterdir()} == {*written}


def test_only_recorded_metrics_are_drawn(tmp_path: Path) -> None:
    lab = write_sweep(tmp_path, small(routes=((2, 8),)))
    names = {path.name for path in write_figures(lab, "placement")}
    tables = ("ranking", "ranking-heldout-loss", "ranking-fd-fashion16-v1-1k")
    assert names == {f"{name}.{kind}" for name in tables for kind in ("md", "tex")}


def test_cells_lacking_seeds_are_not_drawn(tmp_path: Path) -> None:
    shape: dict[str, Any] = {"budgets": (100, 200), "guided": True, "seeds": (0, 1)}
    states = {(route, 1): "pending" for route in ((2, 8), (0, 4), None)}
    lab = write_sweep(tmp_path, small(routes=((2, 8), (0, 4)), states=states, **shape))
    records = sweep_records(lab, lab.sweep("placement"))
    assert [drawn.name for drawn in all_figures(records)] == []


def test_reading_results_imports_no_torch() -> None:
    folder = Path(tread_lab.analysis.__path__[0])
    modules = [p.relative_to(folder).with_suffix("") for p in folder.rglob("*.py")]
    names = [".".join(m.parts) for m in modules if m.name != "__init__"]
    assert "figures.catalogue" in names
    imports = "; ".join(f"import tread_lab.analysis.{name}" for name in names)
    heavy = "('torch', 'mlflow', 'ray', 'matplotlib.pyplot', 'nbclient')"
    check = (
        "import sys; asked = []\n"
        "sys.addaudithook(lambda event, _: event.startswith('socket.') and asked.append(event))\n"
        f"{imports}\n"
        f"print([m for m in {heavy} if m in sys.modules], asked, sep='|')"
    )
    out = subprocess.run([sys.executable, "-c", check], capture_output=True, text=True, check=True)
    loaded, asked = out.stdout.strip().split("|")
    assert loaded == "[]" and asked == "[]"
