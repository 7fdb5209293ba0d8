"""How often does the answer of a sweep call equal cells unequal, and does its interval cover?

    python benchmarks/statistics.py [--sweeps 1000] [--json FILE]

Sweeps are drawn with equal means from the variances of the recorded grid (`placement_grid.json`, 78
placements with 4 seeds; 16 of them are the published ones): each cell's residuals have its own
recorded deviation, and all gaps of a seed share the deviation of its baseline. Printed are the
errors of the product's own functions for the best set and for "better than dense", the share of
cells that are called worse where means are the recorded ones, and how often intervals cover.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from tread_lab.results.best_set import quantile_to_one, range_quantile, worse_over_seeds
from tread_lab.results.intervals import half_width

TABLE = Path(__file__).parent / "placement_grid.json"
Array = NDArray[np.float64]


def recorded() -> tuple[Array, list[bool]]:
    """Return the gaps of the grid, [seeds, cells], and which cells are the published placements."""
    tree = json.loads(TABLE.read_text())
    ends = [(cell["start"], cell["end"]) for cell in tree["cells"]]
    published = [(i == 0 and 2 <= j <= 10) or (j == 8 and i <= 7) for i, j in ends]
    return np.array(tree["gap/heldout"], dtype=np.float64), published


def measured(gaps_SK: Array, seeds: int, sweeps: int) -> dict[str, float]:
    """Return the errors, power and coverage over so many drawn sweeps."""
    S, K = gaps_SK.shape
    means_K = gaps_SK.mean(axis=0)
    seed_S = gaps_SK.mean(axis=1) - gaps_SK.mean()
    own_K = np.sqrt(((gaps_SK - means_K - seed_S[:, None]) ** 2).sum(axis=0) / (S - 1))
    rng, found = np.random.default_rng(seeds), np.zeros(4)
    for _ in range(sweeps):
        noise = own_K * rng.normal(size=(seeds, K)) + seed_S.std(ddof=1) * rng.normal(
            size=(seeds, 1)
        )
        half_K = half_width(noise.std(axis=0, ddof=1), seeds)
        found += (
            worse_than_best(noise).any(),
            better_than_dense(noise),
            worse_than_best(noise + means_K).sum() / (K - 1),
            (np.abs(noise.mean(axis=0)) < half_K).mean(),
        )
    names = ("best set: error", "better than dense: error", "called worse", "interval covers")
    return dict(zip(names, (found / sweeps).tolist()))


def worse_than_best(gaps_SK: Array) -> NDArray[np.bool_]:
    """Return which cells are called worse than the one of the lowest mean."""
    order_K = np.argsort(gaps_SK.mean(axis=0))
    worse = worse_over_seeds(gaps_SK[:, order_K], range_quantile, cells=len(order_K))
    assert worse is not None
    return worse


def better_than_dense(gaps_SK: Array) -> bool:
    """Return whether the cell of the lowest mean is called better than dense, as answers do."""
    best = gaps_SK.mean(axis=0).argmin()
    own = gaps_SK[:, best]
    if own.mean() + half_width(own.std(ddof=1), len(own)) >= 0:
        return False
    with_dense_SK = np.insert(-gaps_SK, 0, 0.0, axis=1)
    better = worse_over_seeds(with_dense_SK, quantile_to_one, cells=with_dense_SK.shape[1])
    return better is not None and bool(better[best + 1])


def main() -> None:
    """Draw, print, and write JSON where asked."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sweeps", type=int, default=1000)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    gaps_SK, published = recorded()
    found = {}
    for name, grid_SK in (("16 cells", gaps_SK[:, published]), ("78 cells", gaps_SK)):
        for seeds in (2, 3, 4):
            numbers = found[f"{name}, {seeds} seeds"] = measured(grid_SK, seeds, options.sweeps)
            texts = ", ".join(f"{key} {value:.3f}" for key, value in numbers.items())
            print(f"{name}, {seeds} seeds: {texts}")
    if options.json:
        options.json.write_text(json.dumps(found, indent=1))


if __name__ == "__main__":
    main()
