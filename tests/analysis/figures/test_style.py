"""Figures stay legible whatever their cells are called."""

from __future__ import annotations

import numpy as np
import pytest

from tread_lab.analysis.figures import style
from tread_lab.analysis.figures.kind import slug

LONG = "0->11 s=0.5 bypass.kind=mask depth=2 width=16 heads=2 loss.kind=discrimination " * 2


def test_a_name_of_any_length_has_three_lines_that_a_page_has_room_for() -> None:
    assert style.arrow("2->8 s=0.5") == r"2$\to$8 s=0.5"
    lines = style.arrow(LONG).split("\n")
    assert len(lines) == 3 and lines[-1].endswith("\u2026")
    assert max(len(line.replace(r"$\to$", "->")) for line in lines) <= 44


def test_a_file_name_is_short_and_tells_two_long_texts_apart() -> None:
    assert slug("gap/heldout w=2") == "gap-heldout-w=2"
    first, second = slug(f"{LONG}1"), slug(f"{LONG}2")
    assert len(first) == len(second) == 80 and first != second


@pytest.mark.parametrize(
    ("costs", "scale"),
    [([1.0, 2.9], "linear"), ([1.0, 3.0], "log"), ([0.0, 1.0, 3.0], "linear")],
)
def test_costs_stand_on_a_logarithmic_axis_only_where_they_differ_much(
    costs: list[float], scale: str
) -> None:
    _, (ax,) = style.figure()
    ax.plot(costs, costs)
    style.cost_axis(ax, costs)
    assert ax.get_xscale() == scale


def test_labels_of_any_size_stand_within_their_figure() -> None:
    fig, (ax,) = style.figure()
    ax.set_yticks([0], ["2->8 s=0.5 bypass=sprint"])
    ax.set_xlabel("FLOPs", fontsize=30)
    fig.draw_without_rendering()
    outer, inner = fig.bbox, ax.get_tightbbox()
    assert inner is not None and outer.x0 <= inner.x0 and outer.y0 <= inner.y0


def test_a_difference_of_zero_is_neither_better_nor_worse() -> None:
    values = {"delta/fid@10k": (-1.0, 0.0, 1.0), "delta/is@10k": (1.0, 0.0, -1.0)}
    for metric, differences in values.items():
        colours = [style.difference_colour(metric, value) for value in differences]
        assert colours == [style.BLUE, style.GREY, style.ORANGE]


def test_differences_have_the_digits_of_the_largest_whatever_its_sign() -> None:
    assert style.signed(np.array([-12.0, 0.5, np.nan])) == ["\N{MINUS SIGN}12.0", "+0.5", ""]
