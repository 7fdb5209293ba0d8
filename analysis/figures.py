"""All figures and tables that a sweep's records support, written beside its plan."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from pathlib import Path

import pandas as pd

from analysis import paper
from analysis.guidance_costs import draw_guidance_costs, guidance_costs
from analysis.loss_gap import (
    draw_gap_by_length,
    draw_gap_over_steps,
    gap_by_length,
    gap_over_steps,
)
from analysis.placements import panels, placements
from analysis.route_bars import draw_route_bars, published_bars, route_bars
from analysis.route_grid import draw_route_grid, route_grid
from analysis.similarity import Similarity, draw_similarities, similarities
from analysis.style import COLUMN, PAGE, Figure, figure, save
from analysis.tables import formatted, ranking, to_latex, to_markdown
from tread_lab.frames import history_frame, metric_columns, trials_frame
from tread_lab.records.durable import write_text
from tread_lab.records.layout import Lab
from tread_lab.records.names import GAP_HELDOUT, GAP_TRAIN, HELDOUT_LOSS, TRAIN_LOSS

Drawn = Iterator[tuple[str, Figure]]


def write_figures(lab: Lab, sweep: str) -> list[Path]:
    """Write every figure as PNG and PDF and the ranking as Markdown and LaTeX; gives their paths.

    A figure without a single number to show is left out. A sweep with more axes than the route's
    has one set of figures for each of their values.

    Raises:
        UserError: no such sweep, or its folder cannot be written.
    """
    folder = lab.known_sweep(sweep)
    frame = trials_frame(lab, folder)
    history = history_frame(lab, folder, keys=[TRAIN_LOSS])
    paths: list[Path] = []
    for panel, trials in panels(frame):
        suffix = re.sub(r"[^\w.=+-]+", "-", f"-{panel}") if panel else ""
        for name, drawn in _figures(lab, trials, history):
            paths += save(drawn, folder.figures, name + suffix)
    for name, drawn in _guidance_figures(frame):
        paths += save(drawn, folder.figures, name)
    return [*paths, *_write_ranking(frame, folder.figures)]


def _figures(lab: Lab, frame: pd.DataFrame, history: pd.DataFrame) -> Drawn:
    """The figures of one panel, each with its file name."""
    samples = [c for c in metric_columns(frame) if "@" in c]
    for metric in (GAP_HELDOUT, *samples):
        yield from _placement_figures(frame, metric)
    if _places(frame, GAP_TRAIN) >= 3:
        gaps = gap_by_length(frame)
        fig, (ax,) = figure(height=2.2)
        draw_gap_by_length(gaps, ax)
        yield "gap_by_length", fig
    curves = gap_over_steps(frame, history)
    if curves.names:
        fig, (ax,) = figure(height=2.2)
        draw_gap_over_steps(curves, ax)
        yield "gap_over_steps", fig
    yield from _similarity_figures(lab, frame)


def _placement_figures(frame: pd.DataFrame, metric: str) -> Drawn:
    """Heatmap and bars of one metric over the placements."""
    if _places(frame, metric) < 2:
        return
    slug = "" if metric == GAP_HELDOUT else "-" + re.sub(r"[^\w.=+-]+", "-", metric).strip("-")
    grid = route_grid(frame, metric)
    if len(grid.starts) > 1 and len(grid.ends) > 1:
        width = COLUMN if len(grid.ends) <= 10 else PAGE
        fig, (ax,) = figure(width=width, height=1.1 + 0.22 * len(grid.starts))
        draw_route_grid(grid, ax)
        yield f"route_grid{slug}", fig
    bars = route_bars(frame, metric)
    fig, axes = figure(width=COLUMN if len(bars.bars) <= 18 else PAGE, height=3.7, rows=2)
    for drawn, title, ax in zip(
        (bars, published_bars()), (_title(frame, bars.measured_as), paper.FIG8_TITLE), axes
    ):
        draw_route_bars(drawn, ax)
        ax.set_title(title)
    yield f"route_bars{slug}", fig


def _guidance_figures(frame: pd.DataFrame) -> Drawn:
    """Quality against cost for sweeps that sample the same runs in several ways."""
    planned = [c for c in frame.attrs["planned"] if " w=" in c and not c.startswith("cost/")]
    for metric in dict.fromkeys(column.split(" ")[0] for column in planned):
        costs = guidance_costs(frame, metric)
        if len(costs.points) < 3 or len(costs.cells) > 4:
            continue
        columns = len(costs.cells)
        fig, axes = figure(width=1.2 + 1.9 * columns, height=2.4, columns=columns)
        draw_guidance_costs(costs, axes)
        yield f"guidance-{re.sub(r'[^a-zA-Z0-9]+', '-', metric)}", fig


def _similarity_figures(lab: Lab, frame: pd.DataFrame) -> Drawn:
    """Dense beside the best route, and every measured route on one page."""
    matrices = similarities(lab, frame)
    dense = [matrix for matrix in matrices if not matrix.routes]
    routed = [matrix for matrix in matrices if matrix.routes]
    if not dense or not routed:
        return
    best = _best(frame, routed)
    fig, axes = figure(height=1.75, columns=2)
    draw_similarities([dense[0], best], axes, route=best.routes[0])
    yield "similarity", fig
    if len(routed) < 2:
        return
    columns = 6
    rows = math.ceil((1 + len(routed)) / columns)
    fig, axes = figure(width=PAGE, height=1.3 * rows, rows=rows, columns=columns)
    draw_similarities([dense[0], *routed], axes, route=None)
    for ax in axes[1 + len(routed) :]:
        ax.set_axis_off()
    yield "similarity_all", fig


def _best(frame: pd.DataFrame, routed: list[Similarity]) -> Similarity:
    """The measured route with the least held-out gap; the first where there is no gap."""
    gaps = frame.drop_duplicates("run").set_index("run").get(GAP_HELDOUT, pd.Series(dtype=float))
    return min(routed, key=lambda matrix: gaps.fillna(math.inf).get(matrix.run, math.inf))


def _write_ranking(frame: pd.DataFrame, folder: Path) -> list[Path]:
    metric = next((m for m in (GAP_HELDOUT, HELDOUT_LOSS) if m in frame), None)
    if metric is None:
        return []
    texts = formatted(ranking(frame, metric), metric)
    paths = [folder / "ranking.md", folder / "ranking.tex"]
    for path, text in zip(paths, (to_markdown(texts), to_latex(texts))):
        write_text(path, text)
    return paths


def _places(frame: pd.DataFrame, metric: str) -> int:
    """How many placements have a number."""
    return int(placements(frame, metric)["value"].notna().sum()) if metric in frame else 0


def _title(frame: pd.DataFrame, measured_as: str) -> str:
    model = str(frame["model"].iloc[0])
    return f"{model} (this sweep; {measured_as})" if measured_as else f"{model} (this sweep)"
