"""All figures and tables that a sweep's records support, written beside its plan."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from pathlib import Path

import pandas as pd

from tread_lab.analysis.figures.cells import (
    cell_gaps,
    draw_cell_gaps,
    draw_named_gaps,
    with_the_baselines_loss,
)
from tread_lab.analysis.figures.gap_and_quality import draw_gap_and_quality, gap_and_quality
from tread_lab.analysis.figures.guidance_costs import draw_guidance_costs, guidance_costs
from tread_lab.analysis.figures.loss_gap import (
    draw_gap_by_length,
    draw_gap_over_steps,
    gap_by_length,
    gap_over_steps,
)
from tread_lab.analysis.figures.over_training import budgets, draw_over_training, over_training
from tread_lab.analysis.figures.pareto import draw_pareto, pareto
from tread_lab.analysis.figures.placements import panels, placements
from tread_lab.analysis.figures.rates import draw_rates, published_rates, rates
from tread_lab.analysis.figures.route_bars import draw_route_bars, published_bars, route_bars
from tread_lab.analysis.figures.route_grid import draw_route_grid, route_grid
from tread_lab.analysis.figures.route_spans import (
    draw_route_spans,
    draw_states,
    published_spans,
    route_spans,
)
from tread_lab.analysis.figures.samples import draw_samples, sample_rows
from tread_lab.analysis.figures.similarity import Similarity, draw_similarities, similarities
from tread_lab.analysis.figures.style import COLUMN, PAGE, Figure, figure, save
from tread_lab.analysis.figures.time_to_equal import (
    draw_time_to_equal,
    published_time_to_equal,
    time_to_equal,
)
from tread_lab.analysis.report import readings
from tread_lab.analysis.tables import published
from tread_lab.analysis.tables.paper_tables import comparison_table
from tread_lab.analysis.tables.ranking import formatted, ranking, to_latex, to_markdown
from tread_lab.frames import (
    history_frame,
    own_metrics,
    ranking_caption,
    ranking_key,
    trials_frame,
)
from tread_lab.records.durable import write_text
from tread_lab.records.lab import Lab
from tread_lab.records.metric_names import (
    GAP_HELDOUT,
    GAP_TRAIN,
    HELDOUT_LOSS,
    TRAIN_FLOPS,
    TRAIN_LOSS,
    metric_kind,
)

Drawn = Iterator[tuple[str, str, Figure]]  # file name, what it says, figure


def write_figures(lab: Lab, sweep: str) -> list[Path]:
    """Write every figure as PNG and PDF, tables as Markdown and LaTeX; gives their paths.

    A figure without a single number to show is left out. A sweep with more axes than the route's
    has one set of figures for each of their values.

    Raises:
        UserError: no such sweep, or its folder cannot be written.
    """
    folder = lab.known_sweep(sweep)
    frame = trials_frame(lab, folder)
    history = history_frame(lab, folder, keys=[TRAIN_LOSS])
    paths: list[Path] = []
    for name, _, drawn in all_figures(lab, frame, history):
        paths += save(drawn, folder.figures, name)
    return [*paths, *_write_tables(frame, folder.figures)]


def all_figures(lab: Lab, frame: pd.DataFrame, history: pd.DataFrame) -> Drawn:
    """Every figure that the rows of `trials_frame` and `history_frame` support.

    Gives (file name, what it says, figure), those of the whole sweep first.
    """
    yield from _sweep_figures(lab, frame)
    yield from _guidance_figures(frame)
    parts = panels(frame)
    if len(parts) > 1:
        yield from _setting_figures(frame, history)
    for panel, trials in parts:
        suffix = slug(f"-{panel}") if panel else ""
        for name, reading, drawn in _panel_figures(lab, trials, history):
            yield name + suffix, reading, drawn


def _sweep_figures(lab: Lab, frame: pd.DataFrame) -> Drawn:
    """Figures that bring all axes together."""
    quality = quality_metrics(frame)
    for metric in quality[:2]:
        yield from _pareto_figure(frame, metric)
    for metric in dict.fromkeys((GAP_HELDOUT, *_sample_metrics(frame))):
        yield from _rate_figure(frame, metric)
    if budgets(frame):
        for metric in dict.fromkeys(m.split(" ")[0] for m in quality):
            yield from _training_figures(frame, metric)
    yield from _sample_figure(lab, frame)


def _panel_figures(lab: Lab, frame: pd.DataFrame, history: pd.DataFrame) -> Drawn:
    """The figures of one panel over placements and over steps."""
    samples = _sample_metrics(frame)
    for metric in (GAP_HELDOUT, *samples):
        yield from _placement_figures(frame, metric)
    for metric in samples:
        yield from _quality_figure(frame, metric)
    if _places(frame, GAP_TRAIN) >= 3:
        gaps = gap_by_length(frame)
        fig, (ax,) = figure(height=2.2)
        draw_gap_by_length(gaps, ax)
        yield "gap_by_length", readings.of_gap_by_length(gaps), fig
    curves = gap_over_steps(frame, history)
    if curves.names:
        fig, (ax,) = figure(height=2.2)
        draw_gap_over_steps(curves, ax)
        yield "gap_over_steps", readings.of_gap_over_steps(curves), fig
    yield from _similarity_figures(lab, frame)


def _setting_figures(frame: pd.DataFrame, history: pd.DataFrame) -> Drawn:
    """All cells of a sweep whose axes are more than the route's, side by side."""
    for metric in (GAP_HELDOUT, *_sample_metrics(frame)):
        if metric not in frame or frame[metric].notna().sum() < 2:
            continue
        gaps = cell_gaps(frame, metric)
        fig, axes = figure(width=PAGE, height=1.0 + 0.18 * len(gaps.names), columns=2)
        draw_cell_gaps(gaps, axes)
        end = "" if metric == GAP_HELDOUT else f"-{slug(metric)}"
        said = "Every cell of the sweep, with its cost beside it."
        yield f"cells{end}", said, fig
    comparable = with_the_baselines_loss(frame)
    curves = gap_over_steps(comparable, history) if len(comparable) > 1 else None
    if curves is not None and curves.names:
        fig, (ax,) = figure(width=PAGE, height=max(2.2, 0.5 + 0.13 * len(curves.names)))
        draw_named_gaps(curves, ax)
        yield "gap_over_steps_all", "The gap of every cell over training.", fig


def _placement_figures(frame: pd.DataFrame, metric: str) -> Drawn:
    """Heatmap, spans and bars of one metric over the placements."""
    if _places(frame, metric) < 2:
        return
    end = "" if metric == GAP_HELDOUT else f"-{slug(metric)}"
    bars = route_bars(frame, metric)
    reading = readings.of_bars(bars)
    grid = route_grid(frame, metric)
    if len(grid.starts) > 1 and len(grid.ends) > 1:
        width = COLUMN if len(grid.ends) <= 10 else PAGE
        fig, (ax,) = figure(width=width, height=1.1 + 0.22 * len(grid.starts))
        draw_route_grid(grid, ax)
        yield f"route_grid{end}", reading, fig
    yield f"route_spans{end}", reading, _span_figure(frame, metric)
    fig, axes = figure(width=COLUMN if len(bars.bars) <= 18 else PAGE, height=3.7, rows=2)
    for drawn, title, ax in zip(
        (bars, published_bars()), (_title(frame, bars.measured_as), published.FIG8_TITLE), axes
    ):
        draw_route_bars(drawn, ax)
        ax.set_title(title)
    yield f"route_bars{end}", f"{reading} {readings.of_agreement(bars)}", fig


def _span_figure(frame: pd.DataFrame, metric: str) -> Figure:
    """The sweep's routes over the blocks beside the published ones."""
    spans = route_spans(frame, metric)
    rows = max(len(spans.routes), len(published.FIG8))
    fig, axes = figure(width=PAGE, height=0.9 + 0.135 * rows, columns=2)
    shown = (spans, _title(frame, "")), (published_spans(), published.FIG8_TITLE)
    for (drawn, title), ax in zip(shown, axes):
        draw_route_spans(drawn, ax)
        ax.set_title(title)
    draw_states(spans, fig)
    return fig


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
        yield f"guidance-{slug(metric)}", readings.of_guidance(costs), fig


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
    yield "similarity", readings.of_similarity(dense[0], best), fig
    if len(routed) < 2:
        return
    columns = 6
    rows = math.ceil((1 + len(routed)) / columns)
    fig, axes = figure(width=PAGE, height=1.3 * rows, rows=rows, columns=columns)
    draw_similarities([dense[0], *routed], axes, route=None)
    for ax in axes[1 + len(routed) :]:
        ax.set_axis_off()
    yield "similarity_all", "One colour scale; each route's blocks are framed.", fig


def _best(frame: pd.DataFrame, routed: list[Similarity]) -> Similarity:
    """The measured route with the least held-out gap; the first where there is no gap."""
    gaps = frame.drop_duplicates("run").set_index("run").get(GAP_HELDOUT, pd.Series(dtype=float))
    return min(routed, key=lambda matrix: gaps.fillna(math.inf).get(matrix.run, math.inf))


def quality_metrics(frame: pd.DataFrame) -> list[str]:
    """Return the metrics of quality: the `ranking_key` first, then those of samples."""
    key = ranking_key(frame)
    return list(dict.fromkeys([*([key] if key else []), *_sample_metrics(frame)]))


def _pareto_figure(frame: pd.DataFrame, metric: str) -> Drawn:
    if TRAIN_FLOPS not in frame:
        return
    points = pareto(frame, metric)
    if len(points.value) < 3:
        return
    fig, (ax,) = figure(height=2.5)
    draw_pareto(points, ax)
    yield f"pareto-{slug(metric)}", readings.of_pareto(points), fig


def _rate_figure(frame: pd.DataFrame, metric: str) -> Drawn:
    if metric not in frame:
        return
    found = rates(frame, metric)
    if not found.curves:
        return
    fig, (ours, theirs) = figure(width=PAGE, height=2.3, columns=2)
    draw_rates(found, ours)
    ours.set_title(_title(frame, found.measured_as))
    draw_rates(published_rates(), theirs)
    theirs.set_title(published.TABLE5_TITLE)
    yield f"selection_rate-{slug(metric)}", readings.of_rates(found), fig


def _training_figures(frame: pd.DataFrame, metric: str) -> Drawn:
    found = over_training(frame, metric)
    width = PAGE if len(found.panels) > 1 else COLUMN
    fig, axes = figure(width=width, height=2.3, columns=len(found.panels))
    for k, ((title, panel), ax) in enumerate(zip(found.panels, axes)):
        draw_over_training(panel, ax, title=title, legend=k == 0)
    yield f"over_training-{slug(metric)}", readings.of_over_training(found), fig
    ours = time_to_equal(frame, found.panels[0][1].metric, cost=TRAIN_FLOPS)
    if not ours.factors:
        return
    fig, (left, right) = figure(width=PAGE, height=2.4, columns=2)
    for drawn, title, ax in (
        (ours, _title(frame, "runs of growing length"), left),
        (published_time_to_equal(), "DiT-XL/2, ImageNet-256 (published)", right),
    ):
        draw_time_to_equal(drawn, ax)
        ax.set_title(title)
    yield f"time_to_equal-{slug(metric)}", readings.of_time_to_equal(ours), fig


def _sample_figure(lab: Lab, frame: pd.DataFrame) -> Drawn:
    rows = sample_rows(lab, frame)
    if rows is None or len(rows.rows) < 2:
        return
    fig, (ax,) = figure(width=PAGE, height=0.25 + 0.53 * len(rows.rows))
    draw_samples(rows, ax)
    yield "samples", "Rows share noise and labels: what differs comes from the network.", fig


def _quality_figure(frame: pd.DataFrame, metric: str) -> Drawn:
    if min(_places(frame, GAP_TRAIN), _places(frame, metric)) < 3:
        return
    found = gap_and_quality(frame, metric)
    fig, (ax,) = figure(height=2.2)
    draw_gap_and_quality(found, ax)
    yield f"gap_and_quality-{slug(metric)}", readings.of_gap_and_quality(found), fig


def _write_tables(frame: pd.DataFrame, folder: Path) -> list[Path]:
    """The ranking, and dense beside routed for every metric of quality, in both formats."""
    key = ranking_key(frame)
    if key is None:
        return []
    texts, caption = formatted(ranking(frame, key), key), ranking_caption(key)
    written = {
        "ranking.md": f"{to_markdown(texts)}\n{caption}\n",
        "ranking.tex": f"% {caption}\n{to_latex(texts)}",
    }
    for column in (HELDOUT_LOSS, *_sample_metrics(frame)):
        if column in frame and (frame["role"] == "trial").any():
            table = comparison_table(frame, column)
            written[f"comparison-{slug(column)}.md"] = table.markdown
            written[f"comparison-{slug(column)}.tex"] = table.latex
    for name, text in written.items():
        write_text(folder / name, text)
    return [folder / name for name in written]


def _sample_metrics(frame: pd.DataFrame) -> list[str]:
    """Measures of quality that the sweep asked for, and others that all its finished runs have."""
    found = [c for c in own_metrics(frame) if "@" in c and ":" not in c]
    return [c for c in found if metric_kind(c).nature == "quality"]


def slug(text: str) -> str:
    """A metric or panel as part of a file name."""
    return re.sub(r"[^\w.=+-]+", "-", text).rstrip("-")


def _places(frame: pd.DataFrame, metric: str) -> int:
    """How many placements have a number."""
    return int(placements(frame, metric)["value"].notna().sum()) if metric in frame else 0


def _title(frame: pd.DataFrame, measured_as: str) -> str:
    model = str(frame["model"].iloc[0])
    return f"{model} (this sweep; {measured_as})" if measured_as else f"{model} (this sweep)"
