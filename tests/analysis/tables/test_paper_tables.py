"""A sweep's own table and the paper's: their cells, notes and captions; published sizes."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from tests.synthetic import small, write_sweep
from tread_lab.analysis.tables.paper_tables import (
    all_published,
    comparison,
    comparison_caption,
    comparison_table,
    parameters,
    sizes,
)
from tread_lab.frames import trials_frame
from tread_lab.specs import UserError

ROWS = pd.DataFrame(
    {
        "cell": ["2->8", "0->4", "dense s=0"],
        "difference": [-1.0, 3.0, -9.0],
        "low": [-2.0, 2.0, float("nan")],
        "high": [-0.5, 4.0, float("nan")],
        "seeds": [3, 3, 3],
        "own": [False, False, True],  # the last is the baseline's own run
    }
)


@pytest.mark.parametrize(("metric", "first"), [("fid@10k", "2\u21928"), ("is@10k", "0\u21924")])
def test_the_first_cell_follows_the_sign_of_the_metric(metric: str, first: str) -> None:
    caption = comparison_caption(ROWS, metric)
    assert caption.startswith(
        "Compared with dense, each by its own interval (95%), of 2 cells: 1 better, 1 worse."
        f" First is {first},"
    )


def test_a_caption_counts_better_cells_and_names_the_best() -> None:
    counts = "Compared with dense, each by its own interval (95%), of 2 cells: 1 better, 1 worse."
    best = f"{counts} First is 2\u21928, FID@10k"
    interval = "\u22121.00 \u00b1 0.75 (95% interval)"
    assert comparison_caption(ROWS, "fid@10k") == f"{best} {interval} against dense."
    alone = ROWS.assign(difference=[0.0, math.nan, -9.0], low=math.nan, high=math.nan)
    means = "Of 1 cells, 0 have a better mean than dense."
    assert comparison_caption(alone, "fid@10k").startswith(means)
    nothing = ROWS.assign(difference=[math.nan, math.nan, -9.0])
    assert comparison_caption(nothing, "fid@10k") == "No cell has both numbers yet."
    neither = "\u0394 held-out loss, routed is no measure of quality: no cell is better by it."
    assert comparison_caption(ROWS, "gap/train") == neither
    one = comparison_caption(ROWS.assign(seeds=1), "fid@10k")
    assert one.endswith("against dense. 1 seed: a claim needs three.")
    two = comparison_caption(ROWS.assign(seeds=[2, 3, 3]), "fid@10k")
    assert two.endswith("2 seeds: a claim needs three.")


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


def test_cells_stand_beside_their_baseline_with_an_interval(frame: pd.DataFrame) -> None:
    found = comparison(frame, "heldout/loss").astype(object)
    rows: list[list[Any]] = [list(row) for row in found.itertuples(index=False)]
    assert list(found.columns) == [
        "cell", "model", "dense", "routed", "difference", "low", "high", "dense:low", "dense:high",
        "routed:low", "routed:high", "seeds", "state", "own",
    ]  # fmt: skip
    expected: list[list[Any]] = [
        ["0->4 s=0.5", "DiT-12x32/2", 0.43484, 0.44524, 0.0104, -0.00231, 0.02311, 2,
         "completed", False],
        ["2->8 s=0.5", "DiT-12x32/2", 0.43484, 0.43334, -0.0015, -0.01421, 0.01121, 2,
         "completed", True],
        ["5->8 s=0.5", "DiT-12x32/2", *[math.nan] * 5, 0, "failed", False],
        ["7->8 s=0.5", "DiT-12x32/2", 0.43484, *[math.nan] * 4, 2, "completed", False],
    ]  # fmt: skip
    for row, values in zip(rows, expected, strict=True):
        assert [row[0], row[1], *row[11:]] == [values[0], values[1], *values[7:]]
        assert row[2:7] == pytest.approx(values[2:7], abs=5e-6, nan_ok=True)
    with pytest.raises(UserError, match=r"^no metric 'heldout/los' in this sweep"):
        comparison(frame, "heldout/los")


def test_the_table_of_a_sweep_has_differences_and_reasons(frame: pd.DataFrame) -> None:
    rows = [
        "| 0->4 s=0.5 | 0.43 \u00b1 0.20 | 0.45 \u00b1 0.19 | +0.010 \u00b1 0.013 | 2 |",
        "| 2->8 s=0.5 | 0.43 \u00b1 0.20 | 0.43 \u00b1 0.19 | -0.001 \u00b1 0.013 | 2 |",
        "| 5->8 s=0.5 |  | failed |  | 0 |",
        "| 7->8 s=0.5 | 0.43 \u00b1 0.20 | not measured |  | 2 |",
    ]
    table = comparison_table(frame, "heldout/loss")
    assert table.markdown.splitlines() == [
        "**This sweep.** held-out loss, dense against routed.",
        "",
        "| cell | held-out loss, dense | routed | difference | seeds |",
        "|---|---|---|---|---|",
        *rows,
        "",
        "Source: the runs of this sweep.",
    ]
    assert table.latex.startswith(
        "% This sweep: held-out loss, dense against routed. Source: the runs of this sweep.\n"
        "\\begin{tabular}{lllll}\n"
    )
    frame.loc[frame["start"] == 2, "model"] = "other"
    models = comparison_table(frame, "heldout/loss").markdown.splitlines()[2:6]
    assert models == [
        "| model | cell | held-out loss, dense | routed | difference | seeds |",
        "|---|---|---|---|---|---|",
        f"| DiT-12x32/2 {rows[0]}",
        f"| other {rows[1]}",
    ]
    larger = frame.assign(**{"heldout/loss": 1000 * frame["heldout/loss"]})
    cells = comparison_table(larger, "heldout/loss").texts.iloc[0].tolist()[1:]
    assert cells == ["0->4 s=0.5", "430 \u00b1 200", "450 \u00b1 190", "+10 \u00b1 13", "2"]


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
