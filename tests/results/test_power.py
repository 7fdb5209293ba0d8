"""What seeds can show, and what they say of equivalence and before the end."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from tests.synthetic import small, write_sweep
from tread_lab.cli.show_plan import STATED, deviations
from tread_lab.records.lab import Lab
from tread_lab.results import trials_frame
from tread_lab.results.answer import answer
from tread_lab.results.cells import deviation_of
from tread_lab.results.intervals import smallest_gap


@pytest.mark.parametrize("n", [2, 3, 5, 10])
def test_smallest_gap_is_shown_by_four_in_five(n: int) -> None:
    values = np.random.default_rng(n).normal(smallest_gap(2.0, n), 2.0, (20_000, n))
    shown = stats.ttest_1samp(values, 0, axis=1).pvalue < 0.05
    assert shown.mean() == pytest.approx(0.8, abs=0.012)


def test_deviations_are_observed_or_stated(tmp_path: Path) -> None:
    """What is stated was observed of the embedded network and says nothing of others."""
    assert deviations(Lab(tmp_path), "DiT-12x32/2") == [*STATED]
    shift = {0: -0.001, 1: 0.0, 2: 0.001}
    lab = write_sweep(tmp_path, small(seeds=(0, 1, 2), seed_shift=shift))
    ((_, found),) = deviations(lab, "DiT-12x32/2")
    assert found == pytest.approx(deviation_of(trials_frame(lab, "placement")))
    assert found == pytest.approx(0.001, rel=0.2)
    assert not deviations(lab, "DiT-S/2")


def test_stated_deviation_is_that_of_the_recorded_grid() -> None:
    grid = Path(__file__).parents[2] / "benchmarks" / "placement_grid.json"
    gaps_SK = np.array(json.loads(grid.read_text())["gap/heldout"])
    observed = np.sqrt((gaps_SK.std(axis=0, ddof=1) ** 2).mean())
    assert STATED[1][1] == pytest.approx(observed, rel=0.01)


def test_answer_calls_cells_within_the_margin_equivalent(seeds_frame: pd.DataFrame) -> None:
    lab, frame = Lab(Path("unused")), seeds_frame.copy()
    trial = frame["role"] == "trial"
    routes = [*frame.loc[trial, "cell"].unique()]
    apart = frame["seed"] - frame["seed"].mean()
    frame["gap/heldout"] = np.where(trial, 0.001 * apart, np.nan)
    frame.loc[trial & (frame["cell"] != routes[0]), "gap/heldout"] += 0.01
    frame.attrs["margin"] = 0.008
    said = answer(lab, frame).text
    assert f"Equivalent to dense within 0.008 {TESTS}: " in said
    named = said.partition(f"{TESTS}: ")[2].partition(".")[0]
    assert routes[0].replace("->", "→").startswith(named.partition(".")[0])
    frame.attrs["margin"] = 1e-6
    assert f"{TESTS}: no cell." in answer(lab, frame).text
    frame.attrs["margin"] = None
    assert "Equivalent" not in answer(lab, frame).text
    assert "with 80% power; the best of many needs more." in answer(lab, frame).text


TESTS = "(two one-sided tests at 5%, each cell by itself)"
