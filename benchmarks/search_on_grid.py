"""How far from the best placement does a search of one seed end, for a third of the grid's cost?

    python benchmarks/search_on_grid.py [--studies 20] [--samplers random tpe gp] [--json FILE]
    python benchmarks/search_on_grid.py --record LAB      make the table anew from recorded sweeps

Searches are answered from `placement_grid.json`, the gaps of every placement 0 <= i <= j <= 11 of
the tiny network, each with several seeds, recorded by `placement_grid.yaml`. As a real search of
one seed, each study sees the noisy gaps of one of them, until a third of the grid's training FLOPs
is spent. Its regret is the gap of the cell that it calls best less that of the best cell, both by
their means over the other seeds.
"""

from __future__ import annotations

import argparse
import json
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from tread_lab.config.sweep import SearchSpec
from tread_lab.sweep.search_space import Space
from tread_lab.sweep.suggest import Observation, propose

TABLE = Path(__file__).parent / "placement_grid.json"
GOAL = "gap/heldout"
SHARE = 1 / 3


@dataclass(frozen=True)
class Grid:
    """A recorded grid: cells, gaps [seeds, cells], training FLOPs of one run of each cell."""

    cells: list[dict[str, Any]]
    gaps_SK: np.ndarray
    flops_K: np.ndarray
    baseline_flops: float

    @staticmethod
    def read(path: Path = TABLE) -> Grid:
        tree = json.loads(path.read_text())
        gaps = np.array(tree["gap/heldout"], dtype=np.float64)
        return Grid(tree["cells"], gaps, np.array(tree["train_flops"]), tree["baseline_flops"])


@dataclass(frozen=True)
class Outcome:
    """How one search ended.

    Attributes:
        regret: of its best cell, in gap, by the other seeds.
        rank: place of that cell among all by the other seeds, from 1.
        tried: cells it tried.
    """

    regret: float
    rank: int
    tried: int


def search(grid: Grid, spec: SearchSpec, space: Space, seed: int) -> Outcome:
    """One search over one seed's gaps; its answer is the lowest gap it has seen."""
    seen_K, others_K = grid.gaps_SK[seed], np.delete(grid.gaps_SK, seed, axis=0).mean(axis=0)
    budget = SHARE * float(grid.flops_K.sum() + grid.baseline_flops)
    spent, known = grid.baseline_flops, list[Observation]()
    while True:
        told = max(len(known) - spec.parallel + 1, 0)  # those in flight are not known yet
        seen = [k if n < told else Observation(k.cell) for n, k in enumerate(known)]
        cell = propose(spec, [GOAL], space, seen)
        spent += float(grid.flops_K[cell])
        if spent > budget:
            break
        known.append(Observation(cell, "measured", (float(seen_K[cell]),)))
    best = min((k.cell for k in known), key=lambda k: seen_K[k])
    rank = int((others_K < others_K[best]).sum()) + 1
    return Outcome(float(others_K[best] - others_K.min()), rank, len(known))


def compare(grid: Grid, samplers: list[str], studies: int, **settings: Any) -> dict[str, Any]:
    """Mean regret of every sampler, with its standard error, over so many study seeds."""
    space, found = Space(grid.cells), dict[str, Any]()
    for sampler in samplers:
        specs = [SearchSpec(sampler=sampler, seed=s, **settings) for s in range(studies)]  # type: ignore[arg-type]
        outcomes = [search(grid, spec, space, spec.seed % len(grid.gaps_SK)) for spec in specs]
        regrets = np.array([outcome.regret for outcome in outcomes])
        found[sampler] = {
            "studies": studies,
            "regret": float(regrets.mean()),
            "standard error": float(regrets.std(ddof=1) / np.sqrt(studies)),
            "median rank": float(np.median([o.rank for o in outcomes])),
            "cells tried": float(np.median([o.tried for o in outcomes])),
        }
    return found


def record(lab_root: Path, path: Path = TABLE) -> None:
    """Write the table from every sweep of a lab; each sweep holds some seeds of the grid."""
    from tread_lab.records.lab import Lab
    from tread_lab.results import trials_frame

    lab = Lab(lab_root.absolute())
    gaps: dict[int, dict[tuple[int, int], float]] = {}
    flops: dict[tuple[int, int], float] = {}
    dense = math.nan
    for name in lab.sweeps():
        frame = trials_frame(lab, name)
        if not (frame["state"] == "completed").all():
            continue
        for _, row in frame.iterrows():
            if row["role"] == "baseline":
                dense = float(row["cost/train_flops"])
                continue
            cell = (int(row["start"]), int(row["end"]))
            gaps.setdefault(int(row["seed"]), {})[cell] = round(float(row[GOAL]), 7)
            flops[cell] = float(row["cost/train_flops"])
    cells, seeds = sorted(flops), sorted(gaps)
    lines = {
        "made_by": "tread-lab sweep benchmarks/placement_grid.yaml; search_on_grid.py --record",
        "seeds": seeds,
        "cells": [{"start": start, "end": end} for start, end in cells],
        "train_flops": [flops[cell] for cell in cells],
        "baseline_flops": dense,
        GOAL: [[gaps[seed][cell] for cell in cells] for seed in seeds],
    }
    text = ",\n".join(f" {json.dumps(key)}: {json.dumps(value)}" for key, value in lines.items())
    path.write_text("{\n" + text + "\n}\n")


def main() -> None:
    """Measure, print, and write JSON where asked."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--studies", type=int, default=20)
    parser.add_argument("--samplers", nargs="+", default=["random", "tpe", "gp"])
    parser.add_argument("--startup", type=int, default=SearchSpec().startup)
    parser.add_argument("--parallel", type=int, default=SearchSpec().parallel)
    parser.add_argument("--record", type=Path, metavar="LAB")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    if options.record:
        record(options.record)
        return
    grid = Grid.read()
    print(f"{len(grid.cells)} cells, one of {len(grid.gaps_SK)} seeds a study")
    settings = {"startup": options.startup, "parallel": options.parallel}
    found = compare(grid, options.samplers, options.studies, **settings)
    for sampler, values in found.items():
        print(f"{sampler:<8}", ", ".join(f"{k} {v:.3g}" for k, v in values.items()))
    if options.json:
        options.json.write_text(json.dumps(found, indent=1))


if __name__ == "__main__":
    main()
