"""A search finds a best placement of the recorded grid for a third of what all of it costs."""

from __future__ import annotations

import runpy
from pathlib import Path

SCRIPT = Path(__file__).parents[3] / "benchmarks" / "search_on_grid.py"


def test_tpe_finds_a_best_cell_for_a_third_of_the_flops() -> None:
    benchmark = runpy.run_path(str(SCRIPT), run_name="search_on_grid")
    grid = benchmark["Grid"].read()
    assert len(grid.cells) == len(grid.flops_K) == 78 and grid.gaps_SK.shape[0] >= 2
    assert (grid.flops_K < grid.baseline_flops).all()  # every route saves something
    found = benchmark["compare"](grid, ["tpe"], studies=6)["tpe"]
    assert found["found"] == 6
    assert found["found one of the best 5%"] >= 4
    assert found["cells tried"] < 78 / 3
