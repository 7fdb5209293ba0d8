"""A sweep's own table says how many cells are better, by the sign of the metric."""

from __future__ import annotations

import pandas as pd
import pytest

from tread_lab.analysis.tables.paper_tables import comparison_caption

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
    assert caption.startswith(f"Better than dense: 1 of 2 cells. First is {first},")


def test_two_seeds_are_no_claim() -> None:
    few = comparison_caption(ROWS.assign(seeds=[1, 2, 2]), "fid@10k")
    assert few.endswith("2 seeds: a claim needs three.")
    assert "no measure of quality" in comparison_caption(ROWS, "gap/train")
