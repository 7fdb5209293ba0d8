"""Does pairing shrink a gap's variance by the factor that is reported? Real tiny runs.

    python benchmarks/pairing.py [--seeds 12] [--steps 150] [--root FOLDER] [--json FILE]

Trains a dense and a routed run per seed. Over images, of one pair of runs: variance of the gap over
many samples of images, both runs on the same ones, over that with each run on its own. Over seeds:
variance of the gaps of equal seeds over that of all pairs of unequal ones. Both beside the factor
of `pairing_kept`, which `tread-lab sweep` reports over images.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from pathlib import Path

import numpy as np

from tread_lab.config import HeldoutSpec, RunSpec, decode, load
from tread_lab.records.lab import Lab
from tread_lab.results.gaps import Losses, gap_over_images
from tread_lab.results.intervals import pairing_kept
from tread_lab.sweep.runner import InlineRunner
from tread_lab.sweep.task import ListQueue, Task

MEASURED = HeldoutSpec(images=512)
SAMPLES, SIZE = 4000, 64


def losses(lab: Lab, routes: list[str], seeds: int, steps: int) -> list[Losses]:
    """Held-out losses of one run per seed, trained here or found in the lab."""
    base = load.load_experiment("tiny", [f"train.steps={steps}"])
    specs = [decode(RunSpec, {**base.run, "routes": routes, "seed": s}) for s in range(seeds)]
    InlineRunner().run(
        lab, ListQueue([Task(spec, (MEASURED,)) for spec in specs]), lambda report: None
    )
    folders = (lab.run_of(spec).evaluation(MEASURED).path for spec in specs)
    return [Losses.read(folder / "losses.npz") for folder in folders]


def over_images(routed: Losses, dense: Losses) -> tuple[float, float]:
    """(reported, observed) share of variance that pairing leaves."""
    rng, ours, theirs = np.random.default_rng(0), *(x.dense.mean(axis=1) for x in (routed, dense))
    paired, apart = [], []
    for _ in range(SAMPLES):
        a, b = (rng.integers(len(ours), size=SIZE) for _ in range(2))
        paired.append((ours[a] - theirs[a]).mean())
        apart.append(ours[a].mean() - theirs[b].mean())
    return gap_over_images(routed.dense, dense.dense).kept, float(np.var(paired) / np.var(apart))


def over_seeds(routed: list[Losses], dense: list[Losses]) -> tuple[float, float]:
    """The same over seeds; pairs of unequal seeds are what an unpaired comparison would see."""
    ours, theirs = (np.array([found.dense.mean() for found in each]) for each in (routed, dense))
    gaps_SS = ours[:, None] - theirs[None, :]
    unequal = gaps_SS[~np.eye(len(ours), dtype=bool)]
    observed = np.diag(gaps_SS).var(ddof=1) / unequal.var(ddof=1)
    return pairing_kept(ours, theirs), float(observed)


def main() -> None:
    """Train, compare, print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=12)
    parser.add_argument("--steps", type=int, default=150)
    parser.add_argument("--route", default="2->8")
    parser.add_argument("--root", type=Path)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        lab = Lab((options.root or Path(folder)).absolute())
        dense = losses(lab, [], options.seeds, options.steps)
        routed = losses(lab, [options.route], options.seeds, options.steps)
    images = np.array([over_images(a, b) for a, b in zip(routed, dense)])
    rows = {
        f"images (median of {options.seeds} pairs of runs)": tuple(np.median(images, axis=0)),
        f"seeds ({options.seeds})": over_seeds(routed, dense),
    }
    print(f"{'variance left by pairing, over':<42}{'reported':>10}{'observed':>10}{'ratio':>8}")
    for name, (reported, observed) in rows.items():
        print(f"{name:<42}{reported:>10.4f}{observed:>10.4f}{observed / reported:>8.2f}")
    if options.json:
        options.json.write_text(json.dumps({k: [float(x) for x in v] for k, v in rows.items()}))


if __name__ == "__main__":
    main()
