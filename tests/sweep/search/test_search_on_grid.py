"""Searches of one seed on the recorded grid: what they cost and how far from the best they end."""

from __future__ import annotations

import runpy
from pathlib import Path

SCRIPT = Path(__file__).parents[3] / "benchmarks" / "search_on_grid.py"


def test_a_search_of_one_seed_has_regret() -> None:
    benchmark = runpy.run_path(str(SCRIPT), run_name="search_on_grid")
    grid = benchmark["Grid"].read()
    assert len(grid.cells) == len(grid.flops_K) == 78 and grid.gaps_SK.shape[0] >= 2
    assert (grid.flops_K < grid.baseline_flops).all()  # every route saves something
    found = benchmark["compare"](grid, ["tpe", "random"], studies=4)
    means_K = grid.gaps_SK.mean(axis=0)
    for sampler in found.values():
        assert 0 < sampler["regret"] < means_K.mean() - means_K.min()  # better than any one cell
        assert sampler["cells tried"] < 78 / 3 + 3
