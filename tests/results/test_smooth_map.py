"""The smooth map is nearer to other seeds than one seed's own gaps, and knows how near."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from tread_lab.results.smooth_map import FEWEST, smooth_map

RECORDED = Path(__file__).parents[2] / "benchmarks" / "placement_grid.json"
TREE = json.loads(RECORDED.read_text())
GAPS_SK = np.array(TREE["gap/heldout"])
PLACES_K3 = np.array([(cell["start"], cell["end"], 0.5) for cell in TREE["cells"]])


def test_smooth_map_predicts_other_seeds_better() -> None:
    raw, smooth = [], []
    for seed, gaps_K in enumerate(GAPS_SK):
        found = smooth_map(PLACES_K3, gaps_K[None], depth=12)
        others_SK = np.delete(GAPS_SK, seed, axis=0)
        apart_SK = others_SK - others_SK.mean(axis=1, keepdims=True)
        noise = apart_SK.var(axis=0, ddof=1).mean() / len(others_SK)
        truth_K = others_SK.mean(axis=0)
        for errors, values_K in ((raw, gaps_K), (smooth, found["mean"].to_numpy())):
            errors.append(np.var(values_K - truth_K) - noise)
    assert np.mean(raw) > 1.8 * np.mean(smooth) > 0


def test_smooth_map_deviates_most_where_nothing_was_measured() -> None:
    gaps_SK = np.where(PLACES_K3[:, 1] - PLACES_K3[:, 0] < 6, GAPS_SK[:1], np.nan)
    found = smooth_map(PLACES_K3, gaps_SK, depth=12)
    measured = np.isfinite(gaps_SK[0])
    assert found["deviation"][~measured].mean() > found["deviation"][measured].mean()
    assert not found["best"][~measured].any() and found["best_of_all"][~measured].any()


def test_smooth_map_is_sure_with_more_seeds_and_scales_with_gaps() -> None:
    one, four, tenfold = (
        smooth_map(PLACES_K3, gaps_SK, depth=12) for gaps_SK in (GAPS_SK[:1], GAPS_SK, 10 * GAPS_SK)
    )
    assert four["deviation"].mean() < 0.7 * one["deviation"].mean()
    assert four["best"].sum() == pytest.approx(1)
    np.testing.assert_allclose(tenfold["mean"], 10 * four["mean"], rtol=1e-6, atol=1e-9)
    np.testing.assert_array_equal(tenfold["best"], four["best"])


def test_smooth_map_refuses_too_few_cells() -> None:
    few = FEWEST - 1
    with pytest.raises(ValueError, match=f"got {few}"):
        smooth_map(PLACES_K3[:few], GAPS_SK[:, :few], depth=12)
