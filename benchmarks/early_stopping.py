"""What does early stopping cost: how often does it keep the best cell, and how many FLOPs for that?

    python benchmarks/early_stopping.py [--sweeps 400] [--json FILE]

Sweeps of the 16 published placements are drawn from the recorded grid (`placement_grid.json`): the
means of cells, the deviation of each over seeds, and that of a seed. At a rung a cell's mean and
the deviation of each seed correlate by `rho` with those at the end, one for each rung; for the
rest, the mean and the deviation at the rung are draws of their own. The product's `choose` decides,
with a rung at 1/3 of the steps, or two at 1/9 and 1/3; the seeds of a cell are tasks on two slots.

`regret` is the true mean of the cell that ends lowest, less that of the best cell. `headline` is
how often an answer calls a cell better than dense where all cells equal dense, with all started
cells counted; `covers` is how often the interval of a complete cell covers its gap of 0 there.
"""

from __future__ import annotations

import argparse
import heapq
import json
from dataclasses import replace
from pathlib import Path

import numpy as np
from error_rates import Array, better_than_dense, recorded

from tread_lab.config.sweep import StopEarlySpec
from tread_lab.records.early_stopping import Standing, choose
from tread_lab.results.intervals import half_width

STEPS, SLOTS = 900, 2
SPECS = {1: StopEarlySpec(), 2: StopEarlySpec(grace=100)}  # by the number of rungs
RHOS = ((0.0,), (0.3,), (0.6,), (0.9,), (1.0,), (-0.5, 0.6), (0.3, 0.6), (0.6, 0.6), (0.6, 0.9))
NAMES = (
    "best kept",
    "regret",
    "regret without",
    "complete",
    "saved",
    "headline",
    "headline without",
    "covers",
)


def halved(scores_RK: Array, seeds: int) -> tuple[list[int], float]:
    """Return the cells that are complete in the end, and the share of training that is saved.

    Args:
        scores_RK: the held-out loss of each cell at each rung, its mean over the seeds.
    """
    rungs, K = scores_RK.shape
    spec = SPECS[rungs]
    parts = np.diff([0, *spec.rungs(STEPS), STEPS]) / STEPS
    standings, trained = [Standing()] * K, 0.0
    waiting, running = list[int](), list[tuple[float, int]]()
    left, now = dict[int, int](), 0.0
    while True:
        while len(running) < SLOTS:
            if not waiting:
                n = choose(standings, spec.reduction, quiet=not running)
                if n is None:
                    break
                standings[n] = replace(standings[n], begun=standings[n].begun + 1)
                waiting, left[n] = [n] * seeds, seeds
            n = waiting.pop()
            length = parts[standings[n].begun - 1]
            trained += length
            heapq.heappush(running, (now + length, n))
        if not running:
            done = [n for n, standing in enumerate(standings) if standing.completed]
            return done, 1 - trained / (K * seeds)
        now, n = heapq.heappop(running)
        left[n] -= 1
        if not left[n]:
            rung = standings[n].begun - 1
            if rung == rungs:
                standings[n] = replace(standings[n], ended=True, completed=True)
            else:
                scores = {**standings[n].scores, rung: float(scores_RK[rung, n])}
                standings[n] = replace(standings[n], scores=scores)


def measured(rhos: tuple[float, ...], seeds: int, sweeps: int, gaps_SK: Array) -> dict[str, float]:
    """Return how often the best cell is complete, and the other numbers of `NAMES`."""
    S, K = gaps_SK.shape
    means_K, seed_S = gaps_SK.mean(axis=0), gaps_SK.mean(axis=1) - gaps_SK.mean()
    own_K = np.sqrt(((gaps_SK - means_K - seed_S[:, None]) ** 2).sum(axis=0) / (S - 1))
    rng, found = np.random.default_rng(seeds), np.zeros(len(NAMES))
    rho_R1 = np.array(rhos)[:, None]
    rest_R1 = np.sqrt(1 - rho_R1**2)
    for _ in range(sweeps):
        order_K = rng.permutation(K)  # cells begin in an order of their own
        mean_K, deviation_K = means_K[order_K], own_K[order_K]
        noise_SK = deviation_K * rng.normal(size=(seeds, K))
        shared_S1 = seed_S.std(ddof=1) * rng.normal(size=(seeds, 1))
        error_RK = deviation_K / np.sqrt(seeds) * rng.normal(size=(len(rhos), K))
        error_RK = rho_R1 * noise_SK.mean(axis=0) + rest_R1 * error_RK
        other_RK = mean_K.std() * rng.normal(size=(len(rhos), K))
        cells_RK = rho_R1 * (mean_K - mean_K.mean()) + rest_R1 * other_RK
        drawn_SK, best = mean_K + noise_SK + shared_S1, mean_K.argmin()
        done, saved = halved(cells_RK + error_RK, seeds)
        null, _ = halved(error_RK, seeds)
        equal_SK = noise_SK + shared_S1
        half_K = half_width(equal_SK.std(axis=0, ddof=min(seeds - 1, 1)), seeds)
        found += (
            best in done,
            mean_K[done[drawn_SK[:, done].mean(axis=0).argmin()]] - mean_K[best],
            mean_K[drawn_SK.mean(axis=0).argmin()] - mean_K[best],
            bool(done),
            saved,
            seeds > 1 and better_than_dense(equal_SK[:, null], started=K),
            seeds > 1 and better_than_dense(equal_SK),
            (np.abs(equal_SK[:, null].mean(axis=0)) < half_K[null]).mean(),
        )
    return dict(zip(NAMES, (found / sweeps).tolist()))


def main() -> None:
    """Draw, print, and write JSON where asked."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sweeps", type=int, default=400)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    _, gaps_SK, published = recorded()
    found = {}
    for rhos in RHOS:
        for seeds in (1, 2, 3):
            numbers = measured(rhos, seeds, options.sweeps, gaps_SK[:, published])
            name = f"rho {', '.join(map(str, rhos))}, {seeds} seeds"
            found[name] = numbers
            texts = ", ".join(f"{key} {value:.4f}" for key, value in numbers.items())
            print(f"{name}: {texts}", flush=True)
    if options.json:
        options.json.write_text(json.dumps(found, indent=1))


if __name__ == "__main__":
    main()
