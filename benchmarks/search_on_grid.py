"""Does a search find a best placement for a third of what the whole grid costs?

    python benchmarks/search_on_grid.py [--studies 20] [--samplers tpe gp random] [--json FILE]
    python benchmarks/search_on_grid.py --record LAB      make the table anew from recorded sweeps

Searches are answered from `placement_grid.json`, the gaps of every placement 0 <= i <= j <= 11 of
the tiny network, each with several seeds, recorded by `placement_grid.yaml`. A search succeeds if
the best cell it tried is in the best set of the whole grid (`tread_lab.compare.best_set`: what
cannot be told from the best cell at 95%) before a third of the grid's training FLOPs is spent.
"""

from __future__ import annotations

import argparse
import json
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from tread_lab.compare.best_set import range_quantile, worse_over_seeds
from tread_lab.specs.axes import Space
from tread_lab.specs.sweep import SearchSpec
from tread_lab.sweep.search.sampler import Observation, propose

TABLE = Path(__file__).parent / "placement_grid.json"
GOAL = "gap/heldout"
SHARE = 1 / 3
TOP = 0.05  # few seeds leave a large best set: whether the answer is among the best means says more


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

    @property
    def total_flops(self) -> float:
        """Every cell and the baseline, one run a seed."""
        return float(len(self.gaps_SK) * (self.flops_K.sum() + self.baseline_flops))

    def best(self) -> list[int]:
        """The best cell and those that cannot be told from it, in the order of their means."""
        order = np.argsort(self.gaps_SK.mean(axis=0), kind="stable")
        worse = worse_over_seeds(self.gaps_SK[:, order], range_quantile)
        return order.tolist() if worse is None else order[~worse].tolist()


@dataclass(frozen=True)
class LossTerms:
    """How one search ended.

    Attributes:
        found: whether its best cell is in the best set.
        share: share of the grid's FLOPs after which that was so for good; NaN if it was not.
        rank: place of its best cell in the whole grid, from 1.
        tried: cells it tried.
    """

    found: bool
    share: float
    rank: int
    tried: int


def search(grid: Grid, spec: SearchSpec, best: list[int], space: Space) -> LossTerms:
    """One search until a third of the FLOPs is spent; the answer is the best mean it has seen."""
    seeds, means = len(grid.gaps_SK), grid.gaps_SK.mean(axis=0)
    spent, known, first = seeds * grid.baseline_flops, [], math.nan
    while True:
        told = max(len(known) - spec.parallel + 1, 0)  # those in flight are not known yet
        seen = [k if n < told else Observation(k.cell) for n, k in enumerate(known)]
        cell = propose(spec, [GOAL], space, seen)
        spent += seeds * float(grid.flops_K[cell])
        if spent > SHARE * grid.total_flops:
            break
        known.append(Observation(cell, "measured", (float(means[cell]),)))
        top = min((k.cell for k in known), key=lambda k: means[k])
        inside = top in best
        first = (
            (first if not math.isnan(first) else spent / grid.total_flops) if inside else math.nan
        )
    rank = int((means < means[top]).sum()) + 1
    return LossTerms(top in best, first, rank, len(known))


def compare(grid: Grid, samplers: list[str], studies: int, **settings: Any) -> dict[str, Any]:
    """Success of every sampler over so many study seeds."""
    best, space = grid.best(), Space(grid.cells)
    found: dict[str, Any] = {}
    for sampler in samplers:
        specs = [SearchSpec(sampler=sampler, seed=s, **settings) for s in range(studies)]  # type: ignore[arg-type]
        outcomes = [search(grid, spec, best, space) for spec in specs]
        shares = [o.share for o in outcomes if o.found]
        found[sampler] = {
            "studies": studies,
            "found": sum(o.found for o in outcomes),
            "found one of the best 5%": sum(
                o.rank <= math.ceil(TOP * len(grid.cells)) for o in outcomes
            ),
            "found the very best": sum(o.rank == 1 for o in outcomes),
            "median rank": float(np.median([o.rank for o in outcomes])),
            "worst rank": max(o.rank for o in outcomes),
            "cells tried": float(np.median([o.tried for o in outcomes])),
            "median share of FLOPs": float(np.median(shares)) if shares else None,
        }
    return found


def record(lab_root: Path, path: Path = TABLE) -> None:
    """Write the table from every sweep of a lab; each sweep holds some seeds of the grid."""
    from tread_lab.frames import trials_frame
    from tread_lab.records.lab import Lab

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
    parser.add_argument("--samplers", nargs="+", default=["tpe", "gp", "random"])
    parser.add_argument("--startup", type=int, default=SearchSpec().startup)
    parser.add_argument("--parallel", type=int, default=SearchSpec().parallel)
    parser.add_argument("--record", type=Path, metavar="LAB")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    if options.record:
        record(options.record)
        return
    grid = Grid.read()
    best = grid.best()
    share = len(best) / len(grid.cells)
    print(
        f"{len(grid.cells)} cells, {len(grid.gaps_SK)} seeds; best set {len(best)} ({share:.0%}):"
    )
    members = [grid.cells[k] for k in best]
    print(" ", ", ".join(f"{c['start']}->{c['end']}" for c in members))
    settings = {"startup": options.startup, "parallel": options.parallel}
    found = compare(grid, options.samplers, options.studies, **settings)
    for sampler, values in found.items():
        print(f"{sampler:<8}", ", ".join(f"{k} {v:g}" for k, v in values.items() if v is not None))
    if options.json:
        options.json.write_text(json.dumps({"best set": len(best), **found}, indent=1))


if __name__ == "__main__":
    main()
