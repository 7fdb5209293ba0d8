"""Figures stay legible whatever their cells are called."""

from __future__ import annotations

import numpy as np

from tread_lab.analysis.figures import style
from tread_lab.analysis.figures.points import slug

LONG = "0->11 s=0.5 bypass.kind=mask depth=2 width=16 heads=2 loss.kind=discrimination " * 2


def test_long_file_names_stay_distinct() -> None:
    assert slug("gap/heldout w=2") == "gap-heldout-w=2"
    first, second = slug(f"{LONG}1"), slug(f"{LONG}2")
    assert len(first) == len(second) == 80 and first != second


def test_zero_difference_is_grey() -> None:
    values = {"delta/fid@10k": (-1.0, 0.0, 1.0), "delta/is@10k": (1.0, 0.0, -1.0)}
    for metric, differences in values.items():
        colours = [style.difference_colour(metric, value) for value in differences]
        assert colours == [style.BLUE, style.GREY, style.ORANGE]


def test_differences_share_their_digits() -> None:
    assert style.signed(np.array([-12.0, 0.5, np.nan])) == ["\N{MINUS SIGN}12.0", "+0.5", ""]
