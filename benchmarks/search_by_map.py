"""Does a search by the smooth map, of cells and seeds, end nearer to the best placement?

    python benchmarks/search_by_map.py [--studies 24] [--runs 26] [--searches random tpe gp map]

Searches are answered from `placement_grid.json` (78 placements, 4 seeds). Each study may see two of
the seeds; the other two are the truth. All searches have equal numbers of runs. `random`, `tpe` and
`gp` spend them on cells of the first seed and answer the lowest gap seen; `random+map` answers the
lowest posterior mean of as many random cells; `map` is the product's sampler, which also asks for
further seeds of a cell, and answers the lowest posterior mean. Regret is the truth of the answered
cell less that of the best one.
"""

from __future__ import annotations

import argparse
import itertools
import json

import numpy as np
from error_rates import TABLE, recorded
from numpy.typing import NDArray

from tread_lab.config.sweep import SearchSpec
from tread_lab.results.smooth_map import smooth_map
from tread_lab.sweep.search_space import Space
from tread_lab.sweep.suggest import Observation, propose, propose_by_map

GOAL = "gap/heldout"
Array = NDArray[np.float64]


def by_map(places_K3: Array, gaps_SK: Array, runs: int, startup: int, seed: int) -> int:
    """Return the cell that the map answers after so many runs of the product's sampler.

    Args:
        gaps_SK: of the seeds that may be seen.
        startup: runs of chance before the map chooses.
    """
    spec = SearchSpec(sampler="map", seed=seed, startup=startup, objectives=(GOAL,))
    known: list[Observation] = []
    for _ in range(runs):
        told = max(len(known) - spec.parallel + 1, 0)
        seen = [o if n < told else Observation(o.cell, turn=o.turn) for n, o in enumerate(known)]
        cell = propose_by_map(spec, places_K3, seen, depth=12, seeds=len(gaps_SK))
        turn = sum(o.cell == cell for o in known)
        known.append(Observation(cell, "measured", (float(gaps_SK[turn, cell]),), turn))
    seen_SK = np.full(gaps_SK.shape, np.nan)
    for o in known:
        seen_SK[o.turn, o.cell] = gaps_SK[o.turn, o.cell]
    mean_K = smooth_map(places_K3, seen_SK, depth=12)["mean"].to_numpy()
    return int(np.where(np.isfinite(seen_SK).any(axis=0), mean_K, np.inf).argmin())


def by_sampler(sampler: str, gaps_K: Array, space: Space, runs: int, seed: int) -> int:
    """Return the cell of the lowest gap that a sampler of the product has seen."""
    spec = SearchSpec(sampler=sampler, seed=seed)  # type: ignore[arg-type]
    known: list[Observation] = []
    for _ in range(runs):
        told = max(len(known) - spec.parallel + 1, 0)
        seen = [one if n < told else Observation(one.cell) for n, one in enumerate(known)]
        cell = propose(spec, [GOAL], space, seen)
        known.append(Observation(cell, "measured", (float(gaps_K[cell]),)))
    return min((one.cell for one in known), key=lambda cell: gaps_K[cell])


def regret(search: str, study: int, runs: int) -> float:
    """Return the regret of one study."""
    ends_K2, gaps_SK, _ = recorded()
    places_K3 = np.column_stack([ends_K2, np.full(len(ends_K2), 0.5)])
    pairs = [*itertools.permutations(range(len(gaps_SK)), 2)]
    own = list(pairs[study % len(pairs)])
    truth_K = np.delete(gaps_SK, own, axis=0).mean(axis=0)
    if search in ("map", "random+map"):
        startup = SearchSpec().startup if search == "map" else runs
        cell = by_map(places_K3, gaps_SK[own], runs, startup, study)
    else:
        space = Space(json.loads(TABLE.read_text())["cells"])
        cell = by_sampler(search, gaps_SK[own[0]], space, runs, study)
    return float(truth_K[cell] - truth_K.min())


def main() -> None:
    """Run the studies and print mean regrets with their standard errors."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--studies", type=int, default=24)
    parser.add_argument("--runs", type=int, default=26)
    searches = ["random", "tpe", "gp", "random+map", "map"]
    parser.add_argument("--searches", nargs="+", default=searches, choices=searches)
    options = parser.parse_args()
    for search in options.searches:
        found = np.array([regret(search, k, options.runs) for k in range(options.studies)])
        error = found.std(ddof=1) / np.sqrt(len(found))
        print(f"{search}: regret {found.mean():.4f}, standard error {error:.4f}", flush=True)


if __name__ == "__main__":
    main()
