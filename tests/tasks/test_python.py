"""Frames from Python, and costs of published models."""

from __future__ import annotations

import pandas as pd
import pytest

import tread_lab
from tests.tasks.conftest import Command, trials
from tread_lab.analysis import paper_tables as published
from tread_lab.records.lab import Lab


@pytest.mark.task(61)
def test_frames_of_a_finished_sweep_open_in_python(swept_lab: Lab) -> None:
    sweep = tread_lab.open_sweep("small")
    assert len(sweep.trials) == 10 and len(sweep.cells) == 5
    assert repr(sweep) == "small: 10 runs of DiT-4x16x1/2 (10 completed), 2 seeds"
    pd.testing.assert_frame_equal(sweep.trials, trials(swept_lab))
    losses = sweep.history("train/loss")
    assert losses.groupby("run")["step"].agg(list).map(tuple).unique().tolist() == [(1, 2, 3, 4)]


@pytest.mark.task(65)
@pytest.mark.parametrize("size", ["S", "B", "L", "XL"])
def test_costs_of_published_models_are_the_papers(size: str, run_command: Command) -> None:
    tables = published.table("Table 2"), published.table("Table S8")
    (row,) = tables[0][tables[0]["size"] == f"{size}/2"].head(1).to_dict("records")
    found = run_command(f"cost --model DiT-{size}/2 --json").json
    assert round(found["parameters"] / 1e6) == row["parameters_M"]
