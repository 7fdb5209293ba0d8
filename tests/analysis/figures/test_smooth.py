"""The smooth map stands beside the measured one, and names what to run next."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd

from tests.synthetic import PAPER_PLACEMENTS, Synthetic, write_sweep
from tread_lab.analysis.figures.placements import placements, routes
from tread_lab.analysis.figures.smooth import smoothed
from tread_lab.results import trials_frame


def test_smooth_map_holds_every_route_of_the_swept_range(paper_frame: pd.DataFrame) -> None:
    (found,) = smoothed(paper_frame)
    expected = {(start, end) for start in range(8) for end in range(2, 11) if start < end}
    assert {*routes(found)} == expected > {*PAPER_PLACEMENTS}
    measured = placements(paper_frame, "gap/heldout").measured
    assert int((found.rows["seeds"] > 0).sum()) == len(measured)
    assert found.caption.startswith("Gaussian process over start, end and rate, here with 12 ")
    assert "Probability of being the lowest measured cell: " in found.caption


def test_smooth_map_is_one_for_each_rate(tmp_path: Path) -> None:
    sweep = Synthetic(rates=(0.5, 0.7), history=False, similarity=False)
    frame = trials_frame(write_sweep(tmp_path, sweep), sweep.name)
    found = [*smoothed(frame)]
    assert [one.title for one in found] == ["rate=0.5", "rate=0.7"]
    assert {*found[0].rows["rate"]} == {0.5}


def test_smooth_map_needs_six_routes(paper_frame: pd.DataFrame) -> None:
    assert not [*smoothed(paper_frame[paper_frame["start"].isna() | (paper_frame["end"] < 5)])]
    unmeasured = paper_frame.assign(**{"gap/heldout": np.nan})
    assert not [*smoothed(unmeasured)]
