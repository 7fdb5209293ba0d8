"""Claims about the figure of all cells: each once, in plan order, with gap, interval and cost."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from tests.synthetic import heldout_gap, small, write_sweep
from tread_lab.analysis.figures.catalogue import write_figures
from tread_lab.analysis.figures.cells import cell_gaps, draw_cell_gaps
from tread_lab.analysis.figures.loss_gap import with_the_baselines_loss
from tread_lab.analysis.figures.style import figure
from tread_lab.frames import trials_frame
from tread_lab.records.metric_names import FAMILY_FLOPS, TRAIN_FLOPS
from tread_lab.specs import UserError


def frame_of(tmp_path: Path, **changes: object) -> pd.DataFrame:
    sweep = small(rates=(0.25, 0.5), **changes)
    frame = trials_frame(write_sweep(tmp_path, sweep), sweep.name)
    return frame.assign(**{FAMILY_FLOPS: frame[TRAIN_FLOPS]})


def test_every_cell_stands_once_in_plan_order_with_its_paired_gap(tmp_path: Path) -> None:
    gaps = cell_gaps(frame_of(tmp_path), "gap/heldout")
    assert gaps["name"].iloc[0] == "0->4 s=0.25" and len(gaps) == 6
    expected = [heldout_gap(route) for route in ((0, 4), (2, 8), (5, 8)) for _ in range(2)]
    assert gaps["value"].tolist() == pytest.approx(expected)
    assert (gaps["low"] < gaps["value"]).all() and (gaps["value"] < gaps["high"]).all()


def test_cost_is_told_as_a_share_of_the_baselines(tmp_path: Path) -> None:
    gaps = cell_gaps(frame_of(tmp_path), "gap/heldout")
    assert gaps["flops"].tolist() == pytest.approx(
        [(12 - 0.5 * n) / 12 for n in (5, 5, 7, 7, 4, 4)]
    )


def test_a_cell_that_failed_has_a_place_and_no_number(tmp_path: Path) -> None:
    frame = frame_of(tmp_path, states={(2, 8): "failed"})
    gaps = cell_gaps(frame, "gap/heldout")
    assert np.isnan(gaps["value"]).tolist() == [False, False, True, True, False, False]
    fig, axes = figure(columns=2)
    draw_cell_gaps(gaps, "gap/heldout", axes)
    assert sum("failed" in text.get_text() for text in axes[0].texts) == 2
    assert axes[0].get_ylim() == axes[1].get_ylim()
    fig.canvas.draw()


def test_an_unknown_metric_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="no metric 'gap/heldot'"):
        cell_gaps(frame_of(tmp_path), "gap/heldot")


def test_training_losses_are_compared_only_if_they_are_the_same_loss(tmp_path: Path) -> None:
    frame = frame_of(tmp_path)
    other = frame["cell"].str.contains("s=0.25")
    frame["loss"] = np.where(other, "equation 0.1", None)
    left = with_the_baselines_loss(frame)
    assert (
        len(left) == len(frame) - other.sum() and not left["cell"].isin(frame[other]["cell"]).any()
    )


def test_a_sweep_over_more_than_routes_has_the_figure(tmp_path: Path, undrawn: None) -> None:
    lab = write_sweep(tmp_path, small(rates=(0.25, 0.5)))
    names = {path.name for path in write_figures(lab, "placement")}
    assert {"cells-gap-heldout.png", "cells-gap-heldout.pdf"} <= names
    one = write_sweep(tmp_path / "one", small())
    assert "cells-gap-heldout.png" not in {path.name for path in write_figures(one, "placement")}
