"""Effects are paired by seed; training losses are compared only where they are the same loss."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from tread_lab.analysis.figures.effects import two_ways
from tread_lab.analysis.figures.style import MINUS

METRIC = "fd[fashion16-v1]@1k"
# process -> dense and routed of seeds 0, 1, 2
VALUES = {
    "edm": ([10.0, 12.0, 11.0], [11.0, 14.0, 14.0]),
    "ddpm": ([20.0, 21.0, 25.0], [22.0, 22.0, 28.0]),
}


def crossed(seeds: int = 3) -> pd.DataFrame:
    rows = []
    for process, (dense, routed) in VALUES.items():
        for seed in range(seeds):
            base = f"{process}-{seed}"
            shared = {"process": process, "seed": seed, "state": "completed"}
            rows.append(
                {**shared, "run": base, "role": "baseline", "route": "dense", METRIC: dense[seed]}
            )
            for selection, more in (("", 0.0), (" by rows", 0.5 * seed)):
                cell = f"2->8{selection} s=0.5 process={process}"
                own = {"run": f"{cell} {seed}", "cell": cell, "role": "trial", "baseline": base}
                rows.append({**shared, **own, "route": "2->8", METRIC: routed[seed] + more})
    frame = pd.DataFrame(rows)
    frame.attrs["axes"] = ("process", "route")
    return frame


def test_missing_seed_leaves_its_pairs() -> None:
    frame = crossed()
    frame.loc[frame["run"] == "2->8 s=0.5 process=ddpm 2", METRIC] = np.nan
    found = two_ways(frame, METRIC)
    assert found is not None and list(found["seeds"]) == [3, 3, 2, 3, 3, 2, 3]
    effects = dict(zip(found["name"].str.replace(MINUS, "-"), found["value"]))
    assert effects["ddpm - edm, dense"] == pytest.approx(11)
    assert effects["2→8 s=0.5 - dense, ddpm"] == pytest.approx(1.5)  # of seeds 0 and 1
    assert effects["2→8 s=0.5: ddpm - edm"] == pytest.approx(0.0)
    assert effects["2→8 by rows s=0.5 - dense, edm"] == pytest.approx(2.5)
    assert (found["low"] < found["value"]).all() and (found["value"] < found["high"]).all()


def test_effects_need_seeds_and_own_baselines() -> None:
    assert two_ways(crossed(seeds=1), METRIC) is None
    shared = crossed()
    shared.loc[shared["role"] == "trial", "baseline"] = "edm-0"
    assert two_ways(shared, METRIC) is None
    several = crossed()  # of a field that is computed from the route
    several.loc[several["cell"].str.contains("by rows", na=False), "baseline"] += " of rows"
    assert two_ways(several, METRIC) is None
    none = crossed()
    none["baseline"] = None
    assert two_ways(none, METRIC) is None
