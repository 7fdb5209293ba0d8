"""Does the smooth map of one seed predict other seeds better than the measured map does?

    python benchmarks/smooth_map.py [--maps N] [--figure FILE] [--json FILE]

Cross-validation over the seeds of `placement_grid.json` (78 placements, 4 seeds), for maps from one
and from two seeds, for all placements and for the 16 published ones: the map is made from some
seeds and held against the mean of the others, whose own variance is taken off the error.

Printed: the error variance of measured and of smooth map (each less its mean over cells, as a
ranking sees it), the regret of the cell that is lowest in each, and how often the 95% interval of
the posterior, widened by the noise of the other seeds (the variance of all four, smoothed along the
skipped share), holds their mean. `--maps N` also draws N sweeps around the recorded means and
prints how often their intervals hold these.
"""

from __future__ import annotations

import argparse
import itertools
import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from error_rates import recorded
from numpy.typing import NDArray
from scipy.optimize import minimize

from tread_lab.results.smooth_map import MIDDLE, skipped, smooth_map

Array = NDArray[np.float64]


def cross_validated(places_K3: Array, gaps_SK: Array, seeds: int) -> dict[str, float]:
    """Return errors, regrets and coverage, averaged over all choices of so many seeds."""
    S, rows = len(gaps_SK), []
    noise_K = smooth_variance(gaps_SK.var(axis=0, ddof=1), skipped(places_K3, 12))
    for own in itertools.combinations(range(S), seeds):
        others_SK = np.delete(gaps_SK, own, axis=0)
        truth_K, raw_K = others_SK.mean(axis=0), gaps_SK[list(own)].mean(axis=0)
        apart_SK = others_SK - others_SK.mean(axis=1, keepdims=True)  # as errors are centred, too
        noise = apart_SK.var(axis=0, ddof=1).mean() / len(others_SK)
        found = smooth_map(places_K3, gaps_SK[list(own)], depth=12)
        smooth_K = found["mean"].to_numpy()
        half_K = 1.96 * np.hypot(found["deviation"], np.sqrt(noise_K / len(others_SK)))
        rows.append(
            (
                np.var(raw_K - truth_K) - noise,
                np.var(smooth_K - truth_K) - noise,
                truth_K[raw_K.argmin()] - truth_K.min(),
                truth_K[smooth_K.argmin()] - truth_K.min(),
                (np.abs(smooth_K - truth_K) < half_K).mean(),
            )
        )
    names = ("error, measured", "error, smooth", "regret, measured", "regret, smooth", "coverage")
    return dict(zip(names, np.mean(rows, axis=0).tolist()))


def simulated(places_K3: Array, gaps_SK: Array, seeds: int, maps: int) -> Array:
    """Return the share of cells that the interval of each drawn map covers, [maps].

    The truth is the mean of all recorded seeds; each seed has a level and a slope as the recorded
    ones differ in, and noise whose variance is the recorded one smoothed along the skipped share.
    """
    away_K = skipped(places_K3, 12) - MIDDLE
    design_K2 = np.column_stack([np.ones_like(away_K), away_K])
    truth_K, (S, K) = gaps_SK.mean(axis=0), gaps_SK.shape
    shared_2S = np.linalg.lstsq(design_K2, (gaps_SK - truth_K).T)[0]
    left_SK = gaps_SK - truth_K - (design_K2 @ shared_2S).T
    noise_K = np.sqrt(smooth_variance((left_SK**2).sum(axis=0) / (S - 1), away_K))
    root_22, rng = np.linalg.cholesky(np.cov(shared_2S)), np.random.default_rng(seeds)
    covered = []
    for _ in range(maps):
        own_SK = (design_K2 @ root_22 @ rng.normal(size=(2, seeds))).T
        drawn_SK = truth_K + own_SK + noise_K * rng.normal(size=(seeds, K))
        found = smooth_map(places_K3, drawn_SK, depth=12)
        covered.append(found["low"].lt(truth_K).to_numpy() & found["high"].gt(truth_K).to_numpy())
    return np.mean(covered, axis=1)


def smooth_variance(variance_K: Array, share_K: Array) -> Array:
    """Return variances that grow exponentially with the skipped share, as likely as can be."""

    def unlikely(at: Array) -> float:
        log_K = at[0] + at[1] * share_K
        return float((log_K + variance_K * np.exp(-log_K)).sum())

    level, slope = minimize(unlikely, [np.log(variance_K.mean()), 0.0]).x
    return np.exp(level + slope * share_K)


def draw(places_K3: Array, gaps_SK: Array, path: Path) -> None:
    """Draw one seed's measured map, its smooth map and the mean of the other seeds."""
    from tread_lab.analysis.figures import style
    from tread_lab.analysis.figures.placements import draw_route_grid
    from tread_lab.analysis.figures.points import Points, bare_rows

    smooth_K = smooth_map(places_K3, gaps_SK[:1], depth=12)["mean"].to_numpy()
    maps = {
        "measured, seed 0": gaps_SK[0],
        "smooth map of seed 0": smooth_K,
        f"mean of seeds 1 to {len(gaps_SK) - 1}": gaps_SK[1:].mean(axis=0),
    }
    fig, axes = style.figure(width=2 * style.PAGE, height=3.8, columns=3)
    scale = pd.Series(np.concatenate([*maps.values()]))
    start, end = places_K3[:, :2].T.astype(int)
    for (title, values_K), ax in zip(maps.items(), axes):
        points = Points("gap/heldout", bare_rows(start=start, end=end, value=values_K))
        draw_route_grid(points, ax, scale=scale)
        ax.set_title(title)
    style.save(fig, path.parent, path.stem)


def main() -> None:
    """Measure, print, draw and write JSON where asked."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--figure", type=Path, metavar="FILE")
    parser.add_argument("--maps", type=int, default=0, help="drawn for the coverage")
    parser.add_argument("--json", type=Path, metavar="FILE")
    options = parser.parse_args()
    ends_K2, gaps_SK, published = recorded()
    places_K3 = np.column_stack([ends_K2, np.full(len(ends_K2), 0.5)])
    found: dict[str, Any] = {}
    for name, chosen in (("78 cells", published | True), ("16 cells", published)):
        for seeds in (1, 2):
            numbers = cross_validated(places_K3[chosen], gaps_SK[:, chosen], seeds)
            found[f"{name}, {seeds} seed(s)"] = numbers
            if options.maps:
                covered = simulated(places_K3[chosen], gaps_SK[:, chosen], seeds, options.maps)
                numbers["coverage, drawn"] = float(covered.mean())
                numbers["its error"] = float(covered.std(ddof=1) / np.sqrt(len(covered)))
            texts = ", ".join(f"{key} {value:.2g}" for key, value in numbers.items())
            print(f"{name}, {seeds} seed(s): {texts}")
    if options.figure:
        draw(places_K3, gaps_SK, options.figure)
    if options.json:
        options.json.write_text(json.dumps(found, indent=1))


if __name__ == "__main__":
    main()
