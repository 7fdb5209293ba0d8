"""Power: the smallest difference that so many seeds can show, and how far seeds differ so far."""

# S seeds, K cells

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pandas as pd
from scipy.special import nctdtrinc, stdtrit

from tread_lab.records.lab import Lab
from tread_lab.records.metric_names import GAP_HELDOUT
from tread_lab.records.run_state import RunState
from tread_lab.results.intervals import CONFIDENCE
from tread_lab.results.runs import trials_frame

POWER = 0.8
SEEDS = (2, 3, 4, 5, 6, 8, 10)


@dataclass(frozen=True)
class Deviation:
    """How far held-out gaps of one cell differ between seeds.

    Attributes:
        value: root mean square over cells of their standard deviations over seeds.
        of: where it was observed.
    """

    value: float
    of: str


TINY = "DiT-12x32/2"  # the network of STATED
STATED = (  # of docs/embedded.md, where a lab has none of its own
    Deviation(0.0037, "embedded images, tiny, 800 steps, equal FLOPs: 16 placements x 3 seeds"),
    Deviation(0.0097, "embedded images, tiny, 120 steps: 78 placements x 4 seeds"),
)


def smallest_gap(deviation: float, n: int) -> float:
    """Return the difference that a two-sided t-test at 5% over n seeds shows with 80% power.

    It solves P(T > t(n - 1)) = 80% for the centre of a noncentral t distribution.
    """
    limit = stdtrit(n - 1, (1 + CONFIDENCE) / 2)
    return float(nctdtrinc(n - 1, 1 - POWER, limit) * deviation / np.sqrt(n))


def deviation_of(frame: pd.DataFrame) -> float:
    """Return `Deviation.value` of the completed trials of a sweep; NaN without two seeds."""
    if GAP_HELDOUT not in frame:
        return float("nan")
    done = (frame["role"] == "trial") & (frame["state"] == RunState.COMPLETED)
    routed = frame[done & (frame["run"] != frame["baseline"])]
    return float(np.sqrt((routed.groupby("cell")[GAP_HELDOUT].std() ** 2).mean()))


def deviations(lab: Lab, model: str) -> Iterator[Deviation]:
    """Yield what sweeps of a network observed; of the embedded one else what is stated."""
    found = []
    for name in lab.sweeps():
        frame = trials_frame(lab, name)
        value = deviation_of(frame)
        if np.isfinite(value) and model in {*frame["model"]}:
            of = f"{name}: {frame['cell'].nunique()} cells x {frame['seed'].nunique()} seeds"
            found.append(Deviation(value, of))
    yield from found or (STATED if model == TINY else ())
