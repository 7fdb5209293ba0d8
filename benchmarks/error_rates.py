"""How often does the answer of a sweep call equal cells unequal, and does its interval cover?

    python benchmarks/error_rates.py [--sweeps 1000] [--json FILE]

Sweeps are drawn with equal means from the variances of the recorded grid (`placement_grid.json`, 78
placements with 4 seeds; 16 of them are the published ones): each cell's residuals have its own
recorded deviation (`unequal`), the mean one (`equal`), or its own, but neighbouring routes share
half of their variance (`correlated`); all gaps of a seed share the deviation of its baseline.
Printed are the errors of the product's own functions for the best set, for "better than dense" and
for equivalence (where the true gap is the margin), the share of cells that are called worse where
means are the recorded ones, and how often intervals cover. `at any look` is the error of "better
than dense" of a reader who looks after each seed, which running sweeps do not show.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from scipy.special import stdtrit

from tread_lab.results.intervals import half_width, worse_over_seeds

BLOCKS = 3  # over which the shared variance of neighbours falls to 1/e
MARGIN = 0.02
RATIO = {n: stdtrit(n - 1, 0.975) / stdtrit(n - 1, 0.95) for n in (2, 3, 4)}  # of two tests to one
NAMES = (
    "best set: error",
    "better than dense: error",
    "at any look",
    "equivalent: error",
    "called worse",
    "interval covers",
)
TABLE = Path(__file__).parent / "placement_grid.json"
Array = NDArray[np.float64]


def recorded() -> tuple[Array, Array, NDArray[np.bool_]]:
    """Return start and end of each cell, the gaps of the grid, [seeds, cells], and which cells are
    the published placements."""
    tree = json.loads(TABLE.read_text())
    ends_K2 = np.array([(cell["start"], cell["end"]) for cell in tree["cells"]], dtype=np.float64)
    start, end = ends_K2.T
    published = ((start == 0) & (end >= 2) & (end <= 10)) | ((end == 8) & (start <= 7))
    return ends_K2, np.array(tree["gap/heldout"], dtype=np.float64), published


def measured(
    ends_K2: Array, gaps_SK: Array, seeds: int, sweeps: int, noise: str
) -> dict[str, float]:
    """Return the errors, power and coverage over so many drawn sweeps."""
    S, K = gaps_SK.shape
    means_K = gaps_SK.mean(axis=0)
    seed_S = gaps_SK.mean(axis=1) - gaps_SK.mean()
    own_K = np.sqrt(((gaps_SK - means_K - seed_S[:, None]) ** 2).sum(axis=0) / (S - 1))
    if noise == "equal":
        own_K = np.full(K, np.sqrt((own_K**2).mean()))
    root_KK = np.eye(K)
    if noise == "correlated":
        away_KK = np.abs(ends_K2[:, None] - ends_K2).sum(axis=-1)
        root_KK = np.linalg.cholesky((np.exp(-away_KK / BLOCKS) + np.eye(K)) / 2)
    rng, found = np.random.default_rng(seeds), np.zeros(6)
    for _ in range(sweeps):
        shared_S1 = seed_S.std(ddof=1) * rng.normal(size=(seeds, 1))
        drawn_SK = own_K * (rng.normal(size=(seeds, K)) @ root_KK.T) + shared_S1
        half_K = half_width(drawn_SK.std(axis=0, ddof=1), seeds)
        margin_K = drawn_SK.mean(axis=0) + MARGIN
        found += (
            worse_than_best(drawn_SK).any(),
            better_than_dense(drawn_SK),
            any(better_than_dense(drawn_SK[:n]) for n in range(2, seeds + 1)),
            (np.abs(margin_K) + half_K / RATIO[seeds] < MARGIN).mean(),
            worse_than_best(drawn_SK + means_K).sum() / (K - 1),
            (np.abs(drawn_SK.mean(axis=0)) < half_K).mean(),
        )
    return dict(zip(NAMES, (found / sweeps).tolist()))


def worse_than_best(gaps_SK: Array) -> NDArray[np.bool_]:
    """Return which cells are called worse than the one of the lowest mean."""
    order_K = np.argsort(gaps_SK.mean(axis=0))
    worse = worse_over_seeds(gaps_SK[:, order_K], chosen=True, cells=len(order_K))
    assert worse is not None
    return worse


def better_than_dense(gaps_SK: Array, started: int | None = None) -> bool:
    """Return whether the cell of the lowest mean is called better than dense, as answers do.

    Args:
        started: cells, those without a result included; by default those at hand.
    """
    best = gaps_SK.mean(axis=0).argmin()
    own = gaps_SK[:, best]
    if own.mean() + half_width(own.std(ddof=1), len(own)) >= 0:
        return False
    with_dense_SK = np.insert(-gaps_SK, 0, 0.0, axis=1)
    cells = (started or gaps_SK.shape[1]) + 1
    better = worse_over_seeds(with_dense_SK, chosen=False, cells=cells)
    return better is not None and bool(better[best + 1])


def main() -> None:
    """Draw, print, and write JSON where asked."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sweeps", type=int, default=1000)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    ends_K2, gaps_SK, published = recorded()
    found = {}
    for chosen in (published, published | True):
        for noise in ("unequal", "equal", "correlated"):
            for seeds in (2, 3, 4):
                own = ends_K2[chosen], gaps_SK[:, chosen]
                numbers = measured(*own, seeds, options.sweeps, noise)
                name = f"{chosen.sum()} cells, {noise} variances, {seeds} seeds"
                found[name] = numbers
                texts = ", ".join(f"{key} {value:.3f}" for key, value in numbers.items())
                print(f"{name}: {texts}", flush=True)
    if options.json:
        options.json.write_text(json.dumps(found, indent=1))


if __name__ == "__main__":
    main()
