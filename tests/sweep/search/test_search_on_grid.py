"""A search finds a best placement of the recorded grid for a third of what all of it costs."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest

SCRIPT = Path(__file__).parents[3] / "benchmarks" / "search_on_grid.py"


@pytest.fixture(scope="module")
def benchmark() -> ModuleType:
    spec = importlib.util.spec_from_file_location("search_on_grid", SCRIPT)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["search_on_grid"] = module
    spec.loader.exec_module(module)
    return module


def test_the_recorded_grid_is_whole(benchmark: ModuleType) -> None:
    grid = benchmark.Grid.read()
    assert len(grid.cells) == 78 and grid.gaps_SK.shape[0] >= 2
    assert grid.gaps_SK.shape[1] == len(grid.flops_K) == 78
    assert (grid.flops_K < grid.baseline_flops).all()  # every route saves something


def test_tpe_finds_a_best_cell_for_a_third_of_the_flops(benchmark: ModuleType) -> None:
    found = benchmark.compare(benchmark.Grid.read(), ["tpe"], studies=6)["tpe"]
    assert found["found"] == 6
    assert found["found one of the best 5%"] >= 4
    assert found["cells tried"] < 78 / 3
