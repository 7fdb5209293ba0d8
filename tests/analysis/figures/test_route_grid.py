"""The heatmap shows the true differences, and a cell without one cannot be taken for a value."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from matplotlib.patches import Rectangle

from tests.analysis.conftest import ENDINGS
from tests.synthetic import FD, PAPER_PLACEMENTS, fd_gap, heldout_gap
from tread_lab.analysis.figures.placements import panels, placements
from tread_lab.analysis.figures.route_grid import RouteGrid, draw_route_grid, route_grid
from tread_lab.analysis.figures.style import BETTER_TO_WORSE, LESS_TO_MORE, figure, ink_on
from tread_lab.specs import UserError


def test_values_are_the_true_gaps_at_their_places(paper_frame: pd.DataFrame) -> None:
    grid = route_grid(paper_frame)
    assert grid.starts == tuple(range(8)) and grid.ends == tuple(range(2, 11))
    for route in set(PAPER_PLACEMENTS) - set(ENDINGS):
        at = (route[0], route[1] - 2)
        assert grid.values[at] == pytest.approx(heldout_gap(route))
        assert grid.low[at] < grid.values[at] < grid.high[at]
        assert grid.states[at] == "completed"
    assert np.isfinite(grid.values).sum() == 12
    assert grid.best == (2, 8)


def test_cells_without_a_number_keep_their_state(paper_frame: pd.DataFrame) -> None:
    grid = route_grid(paper_frame)
    for route, state in ENDINGS.items():
        assert grid.states[route[0], route[1] - 2] == state
    assert grid.states[5, 3] == ""  # 5->5 was not planned


def test_any_metric_is_shown_as_its_difference_to_the_baseline(paper_frame: pd.DataFrame) -> None:
    grid = route_grid(paper_frame, FD)
    assert grid.metric == f"delta/{FD}"
    assert grid.baseline == pytest.approx(1.8)
    assert grid.values[2, 6] == pytest.approx(fd_gap((2, 8)))


def test_a_metric_where_more_is_better_has_its_best_at_the_top(paper_frame: pd.DataFrame) -> None:
    frame = paper_frame.rename(columns={FD: "precision[x]@1k"})
    grid = route_grid(frame, "precision[x]@1k")
    row, column = np.unravel_index(np.nanargmax(grid.values), grid.values.shape)
    assert grid.best == (grid.starts[row], grid.ends[column]) == (0, 2)


def test_a_cell_of_seeds_is_a_number_only_when_all_of_them_completed(
    seeds_frame: pd.DataFrame,
) -> None:
    (_, half), _ = panels(seeds_frame)
    places = placements(half, "gap/heldout")
    lost, best = places.routes.index((4, 8)), places.routes.index((2, 8))
    assert places.states[lost] == "failed" and np.isnan(places.value[lost])
    assert places.value[best] == pytest.approx(heldout_gap((2, 8)))
    assert places.measured_as == "95% over 3 seeds"


def test_a_second_axis_is_refused_by_name_and_split_by_panels(seeds_frame: pd.DataFrame) -> None:
    with pytest.raises(UserError, match=r"0->4 s=0\.5 and 0->4 s=0\.75"):
        route_grid(seeds_frame)
    found = panels(seeds_frame)
    assert [name for name, _ in found] == ["rate=0.5", "rate=0.75"]
    assert all((part["role"] == "baseline").sum() == 3 for _, part in found)
    assert sum((part["role"] == "trial").sum() for _, part in found) == 24


def test_an_unknown_metric_is_named_with_the_nearest(paper_frame: pd.DataFrame) -> None:
    with pytest.raises(UserError, match="did you mean 'gap/heldout'"):
        route_grid(paper_frame, "gap/heldot")


def test_a_finished_run_without_the_metric_is_not_measured(paper_frame: pd.DataFrame) -> None:
    frame = paper_frame.copy()
    frame.loc[frame["route"] == "2->8", FD] = np.nan
    assert route_grid(frame, FD).states[2, 6] == "unmeasured"


def drawn(grid: RouteGrid) -> tuple[dict[tuple[int, int], str], dict[tuple[int, int], str]]:
    """Texts and hatches by (start, end) as they stand on the drawing."""
    _, (ax,) = figure()
    draw_route_grid(grid, ax)
    texts = {
        (int(t.get_position()[1]), int(t.get_position()[0]) + 2): t.get_text() for t in ax.texts
    }
    boxes = [p for p in ax.patches if isinstance(p, Rectangle) and p.get_hatch()]
    middle = [(p.get_y() + p.get_height() / 2, p.get_x() + p.get_width() / 2) for p in boxes]
    hatches = {(round(y), round(x) + 2): p.get_hatch() for (y, x), p in zip(middle, boxes)}
    return texts, hatches


def test_states_are_drawn_with_hatch_and_letter_values_without(paper_frame: pd.DataFrame) -> None:
    texts, hatches = drawn(route_grid(paper_frame))
    assert set(hatches) == set(ENDINGS)
    assert len(set(hatches.values())) == 4  # no two endings look alike
    assert {route: texts[route] for route in ENDINGS} == {
        (0, 10): "D",
        (7, 8): "F",
        (1, 8): "S",
        (0, 3): "\u2026",
    }
    assert texts[2, 8] == "\N{MINUS SIGN}1.5" and texts[3, 8] == "+3.2"  # units of 10^-3
    assert set(texts) == set(PAPER_PLACEMENTS)


def test_colours_are_centred_on_the_baseline(paper_frame: pd.DataFrame) -> None:
    grid = route_grid(paper_frame)
    _, (ax,) = figure()
    draw_route_grid(grid, ax)
    image = ax.images[0]
    assert image.norm(0.0) == 0.5
    blue, orange = image.cmap(image.norm(-0.01)), image.cmap(image.norm(0.01))
    assert blue[2] > blue[0] and orange[0] > orange[2]
    assert ax.get_title(loc="left") == f"dense baseline: held-out loss = {grid.baseline:.4g}"


def test_the_best_cell_is_outlined(paper_frame: pd.DataFrame) -> None:
    _, (ax,) = figure()
    draw_route_grid(route_grid(paper_frame), ax)
    (outline,) = [p for p in ax.patches if isinstance(p, Rectangle) and p.get_linewidth() > 1]
    assert (outline.get_y() + 0.5, outline.get_x() + 0.5 + 2) == (2, 8)


def test_a_metric_without_a_better_is_purple_to_green_and_has_no_best(
    paper_frame: pd.DataFrame,
) -> None:
    grid = route_grid(paper_frame, "gap/train")
    assert grid.best is None
    _, (ax,) = figure()
    draw_route_grid(grid, ax)
    assert ax.images[0].get_cmap().name == "less_to_more"


def test_letters_on_every_colour_have_a_contrast_of_4_5() -> None:
    for colours in (BETTER_TO_WORSE, LESS_TO_MORE):
        for share in np.linspace(0, 1, 41):
            red, green, blue = (
                v / 12.92 if v <= 0.04045 else ((v + 0.055) / 1.055) ** 2.4
                for v in colours(share)[:3]
            )
            light = 0.2126 * red + 0.7152 * green + 0.0722 * blue
            white = ink_on(colours(share)) == "white"
            assert (1.05 / (light + 0.05) if white else (light + 0.05) / 0.05) >= 4.5
