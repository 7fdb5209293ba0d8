"""A sweep's own table and the paper's: their cells, notes and captions; published sizes."""

from __future__ import annotations

import math
from pathlib import Path

import pandas as pd
import pytest

from tests.synthetic import small, write_sweep
from tread_lab.analysis.tables.paper_tables import (
    all_published,
    parameters,
    sizes,
    sweep_table,
)
from tread_lab.results import trials_frame


@pytest.fixture
def frame(tmp_path: Path) -> pd.DataFrame:
    """A better cell that is its own baseline, a worse one, one that failed, one not measured."""
    sweep = small(
        seeds=(0, 1), seed_shift={0: 0.001, 1: -0.001}, states={(5, 8): "failed"},
        routes=((0, 4), (2, 8), (5, 8), (7, 8)),
    )  # fmt: skip
    frame = trials_frame(write_sweep(tmp_path, sweep), "placement")
    frame.loc[frame["start"] == 7, "heldout/loss"] = math.nan
    own = frame["start"] == 2
    frame.loc[own, "run"] = frame.loc[own, "baseline"]
    return frame


def test_a_sweeps_table_ranks_its_cells_beside_their_own_differences(frame: pd.DataFrame) -> None:
    table = sweep_table(frame, "heldout/loss", "Mixed.")
    rows = table.texts[["cell", "heldout/loss", "delta/heldout/loss", "state"]].values.tolist()
    assert rows == [
        ["dense", "0.43 \u00b1 0.20", "0", "completed"],
        ["0->4 s=0.5", "0.45 \u00b1 0.19", "+0.010 \u00b1 0.013", "completed"],
        ["5->8 s=0.5", "", "", "failed: failed on purpose"],
        ["7->8 s=0.5", "", "", "completed"],
    ]
    assert table.markdown.startswith("**This sweep.** Ranked by heldout/loss, lower is better")
    assert table.markdown.endswith("Source: the runs of this sweep. Mixed.\n")
    assert table.latex.startswith("% This sweep: Ranked by heldout/loss")


def test_published_sizes_have_their_parameters_and_costs() -> None:
    found = sizes()
    assert list(found.columns) == [
        "size", "width", "heads", "layers", "route", "parameters_M", "dense_gmac", "routed_gmac",
        "speed_up",
    ]  # fmt: skip
    expected = [
        ("S", 384, 6, 12, "2->8", 32.858896, 6.0541, 4.20441, 1.43994),
        ("B", 768, 12, 12, "2->8", 130.303504, 23.00196, 16.13169, 1.42589),
        ("L", 1024, 16, 24, "2->20", 457.824272, 80.69343, 48.17918, 1.67486),
        ("XL", 1152, 16, 28, "2->24", 674.816272, 118.6167, 69.12811, 1.715897),
    ]
    for row, values in zip(found.itertuples(index=False), expected, strict=True):
        assert tuple(row)[:5] == values[:5]
        assert tuple(row)[5:] == pytest.approx(values[5:], rel=1e-5)


def test_a_route_adds_no_parameters_a_decoder_and_a_fusion_do() -> None:
    found = parameters()
    assert found.to_dict("list") == {
        "model": ["DiT", "DiT + TREAD", "MaskDiT", "SPRINT"],
        "parameters_M": [674.816272, 674.816272, 730.116368, 677.472784],
    }


def test_published_numbers_are_printed_with_source_note_and_marks() -> None:
    page = all_published()
    assert "| DiT | B/2 | 130 | 43.47 | 21.34 | \u221222.13\u2020 | DiT | EDM |  |" in page
    assert "| SG (FID) | 1.58 | 173.16 | not stated |" in page
    assert "Source: TREAD, ICCV 2025 (arXiv 2501.04765, later versions), Table 6. How 1/6" in page
