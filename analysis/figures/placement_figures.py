"""Route placement as figures: a cell per start and end, and spans over blocks (Fig. 8)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd

from tread_lab.analysis.figures import style
from tread_lab.analysis.figures.kind import Drawn, SweepRecords, figure_kind, named
from tread_lab.analysis.figures.placements import (
    best_route,
    chance_of_order,
    control_texts,
    controls,
    placements,
    published_placements,
    rank_correlation,
    routes,
    trend,
)
from tread_lab.analysis.figures.points import Points
from tread_lab.analysis.tables import published
from tread_lab.frames import number
from tread_lab.records.metric_names import (
    GAP_HELDOUT,
    GAP_TRAIN,
    HELDOUT_LOSS,
    lower_is_better,
    metric_kind,
)
from tread_lab.specs.model import depth_of

BASELINE_OF = {GAP_HELDOUT: HELDOUT_LOSS, GAP_TRAIN: HELDOUT_LOSS}
MARGIN = 3  # Fig. 8: a route of 12 blocks should end at block 9 = B - 3 at the latest
SMOOTH = " as if routes were independent, which neighbours are not"
Box = tuple[float, float, float, float]  # left, low, width, height


def draw_route_grid(places: Points, ax: style.Axes) -> None:
    """Draw a cell for every route, its start from above and its end from the left."""
    boxes = [(end - 0.5, start - 0.5, 1.0, 1.0) for start, end in routes(places)]
    _draw_boxes(ax, places, boxes, places.rows["value"], edge="white", width=0.8, dot=(0.86, 0.18))
    starts, ends = _blocks(places.rows["start"]), _blocks(places.rows["end"])
    ax.set_xlim(ends[0] - 0.5, ends[-1] + 0.5)
    ax.set_ylim(starts[-1] + 0.5, starts[0] - 0.5)
    ax.set_xticks(ends)
    ax.set_yticks(starts)
    ax.set_xlabel("last block skipped, $j$")
    ax.set_ylabel("first block skipped, $i$")


def draw_route_spans(
    places: Points,
    ax: style.Axes,
    *,
    depth: int = 12,
    scale: pd.Series[float] | None = None,
    beside: Points | None = None,
) -> None:
    """Draw a span over the blocks that each route skips, by start, then by end.

    The dashed line stands after the last block at which the paper lets a route end, in a network of
    `depth` blocks.

    Args:
        scale: the values that the colours reach over, of all panels beside it; its own by default.
        beside: controls, which skip no block: apart from the routes, each as wide as the network.
    """
    places = replace(places, rows=places.rows.sort_values(["start", "end"]))
    boxes = [(i - 0.5, row - 0.38, j - i + 1, 0.76) for row, (i, j) in enumerate(routes(places))]
    names = [f"{start}\N{RIGHTWARDS ARROW}{end}" for start, end in routes(places)]
    if beside is not None and len(beside.rows):
        names += [name.replace(" ", "\n", 1) for name in beside.rows["name"]]
        below = range(len(boxes) + 1, len(names) + 1)
        boxes += [(-0.5, row - 0.38, depth, 0.76) for row in below]
        places = replace(places, rows=pd.concat([places.rows, beside.rows], ignore_index=True))
    scale = places.rows["value"] if scale is None else scale
    _draw_boxes(ax, places, boxes, scale, edge=style.GREY, width=0.4, dot=(None, 0.5))
    latest_end = depth - MARGIN
    ax.axvline(latest_end + 0.5, color=style.BLACK, linewidth=0.8, linestyle="--", zorder=5)
    ax.set_xlim(-0.5, depth - 0.5)
    rows = [low + 0.38 for _, low, _, _ in boxes]
    ax.set_ylim(rows[-1] + 0.6, -0.6)
    ax.set_xticks(range(0, depth, 2 if depth <= 12 else 4))
    ax.set_yticks(rows, names)
    ax.set_xlabel(f"block; dashed: after block {latest_end}")
    ax.grid(axis="x", color=style.GREY, alpha=0.2, linewidth=0.4)


def _draw_boxes(
    ax: style.Axes,
    places: Points,
    boxes: Sequence[Box],
    scale: pd.Series[float],
    *,
    edge: str,
    width: float,
    dot: tuple[float | None, float],
) -> None:
    """Draw a box for each route, coloured by its value; routes without one hatched and lettered.

    The best is outlined, and a dot stands where the interval holds zero: at a share of the box's
    width and height, or near its right end. A value that its span has no room for stands beside it.
    """
    power, norm = style.power_of_ten(scale), style.centred(scale)
    colours = style.DIFFERENCES[metric_kind(places.metric).sign]
    rows = places.rows
    texts = style.signed(rows["value"].to_numpy() / 10.0**power)
    points = zip(boxes, rows.index, rows["state"], rows["value"], texts, style.holds_zero(rows))
    for (left, low, across, up), index, state, value, text, undecided in points:
        look = style.STATE_LOOKS.get(state)
        fill = (1.0, 1.0, 1.0) if look else colours(norm(value))
        ink, best = style.ink_on(fill), index == places.best
        line = (style.GREY, 0.5) if look else (edge, width)
        colour, thickness = (style.BLACK, 1.3) if best else line
        box = style.Rectangle((left, low), across, up, fc=fill, ec=colour, lw=thickness)
        box.set(hatch=look and look.hatch, zorder=3 if best else 2, clip_on=False)
        ax.add_patch(box)
        look_of_text: dict[str, Any] = {"va": "center", "fontsize": 5.5, "zorder": 4}
        if look:
            plate = {"facecolor": "white", "edgecolor": "none", "pad": 0.7}
            look_of_text |= {"fontsize": 6.5, "bbox": plate}
        text, middle = look.letter if look else text, low + up / 2
        if dot[0] is None and across == 1:
            ax.text(left + 1.1, middle, text, ha="left", color=style.BLACK, **look_of_text)
        else:
            ax.text(left + across / 2, middle, text, ha="center", color=ink, **look_of_text)
        if undecided:
            at = dot[0] * across if dot[0] else across - 0.2
            style.mark_zero(ax, left + at, low + dot[1] * up, ink)
    ax.tick_params(length=0)
    ax.spines[:].set_visible(False)
    mappable = style.ScalarMappable(norm, colours)
    style.colour_bar(ax, mappable, style.label(places.metric), power=power)


def _blocks(blocks: pd.Series[int]) -> range:
    return range(blocks.min(), blocks.max() + 1) if len(blocks) else range(1)


def draw_legend(drawn: Sequence[Points], fig: style.Figure) -> None:
    """Say below the figure what outline, dots, hatches and letters mean, where there are any."""
    best = [style.Patch(fc="none", ec=style.BLACK, lw=1.3, label="best mean")]
    rows = pd.concat([places.rows for places in drawn])
    handles = [
        *best[: any(places.best is not None for places in drawn)],
        *style.zero_legend(rows),
        *style.state_legend(rows["state"]),
    ]
    if handles:
        columns = len(handles) if fig.get_figwidth() > style.COLUMN or len(handles) <= 3 else 2
        fig.legend(handles=handles, loc="outside lower center", ncols=columns)


def baseline_title(frame: pd.DataFrame, metric: str) -> str:
    """Return what the baseline has itself: of the metric, or of the loss for a loss gap; then the
    difference of each control to it."""
    column = BASELINE_OF.get(metric, metric)
    if column not in frame:  # a loss of other settings than the default has another name
        return ""
    dense = frame.loc[frame["role"] == "baseline", column]
    name = style.label(column).replace("\n", "")
    if not dense.notna().any():
        return ""
    lines = [f"dense baseline: {name} = {dense.mean():.4g}"]
    for _, row in controls(frame, metric).measured.iterrows():
        lines.append(f"{row['name']}: {number(row['value'], signed=True)}")
    return "\n".join(lines)


@figure_kind(each_panel=True, compares=True)
def grids(records: SweepRecords) -> Iterator[Drawn]:
    """Where a route starts and ends"""
    for metric, places in records.placed:
        starts, ends = _blocks(places.rows["start"]), _blocks(places.rows["end"])
        if min(len(starts), len(ends)) > 1:
            width = style.COLUMN if len(ends) <= 10 else style.PAGE
            fig, (ax,) = style.figure(width=width, height=1.1 + 0.22 * len(starts))
            draw_route_grid(places, ax)
            ax.set_title(baseline_title(records.frame, metric))
            draw_legend([places], fig)
            yield Drawn(named("route_grid", metric), best_route(places), fig, metric)


def agreement_text(places: Points) -> str:
    """Return whether the routes have the published order.

    Only the order, from better to worse, is compared: metric, network and data differ.
    """
    values = dict(zip(routes(places), places.rows["value"]))
    common = [route for route in published.FIG8 if np.isfinite(values.get(route, np.nan))]
    theirs = np.array([published.FIG8[route] for route in common])
    sign = 1 if lower_is_better(places.metric) else -1  # published are differences of FID
    ours = np.array([sign * values[route] for route in common])
    correlation = rank_correlation(ours, theirs)
    if not np.isfinite(correlation):
        return "Too few of the published routes have a number here to compare their order."
    chance = chance_of_order(ours, theirs)
    order = trend(correlation, chance, "the published order holds here too", "the opposite of it")
    p = f" (p = {chance:.2g}{SMOOTH})" if np.isfinite(chance) else ""
    return (
        f"Rank correlation with the published differences over {len(common)} common routes:"
        f" {number(correlation)}{p}; {order}."
    )


@figure_kind(each_panel=True)
def spans(records: SweepRecords) -> Iterator[Drawn]:
    """Placement as the paper draws it: the blocks of each route"""
    for metric, places in records.placed:
        parts = list(records.compared_parts(metric))
        height = 0.9 + 0.135 * max(len(places.rows), len(published.FIG8))
        fig, (*axes, theirs) = style.figure(width=style.PAGE, height=height, columns=len(parts) + 1)
        of_parts = [placements(part.frame, metric) for part in parts]
        dense = [controls(part.frame, metric) for part in parts]
        scale = pd.concat([points.rows["value"] for points in (*of_parts, *dense)])
        captions = []
        for part, ours, beside, ax in zip(parts, of_parts, dense, axes):
            depth = depth_of(str(part.frame["model"].iloc[0]))
            draw_route_spans(ours, ax, depth=depth, scale=scale, beside=beside)
            ax.set_title(part.title())
            question = part.frame.attrs.get("comparison", "")
            said = " ".join([best_route(ours), *control_texts(beside), agreement_text(ours)])
            captions.append(f"{question[0].upper()}{question[1:]}: {said}" if question else said)
        draw_route_spans(published_placements(), theirs)
        theirs.set_title(published.FIG8_TITLE)
        draw_legend(of_parts, fig)
        yield Drawn(named("route_spans", metric), " ".join(captions), fig, metric)
