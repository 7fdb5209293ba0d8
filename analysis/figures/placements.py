"""Route placement: the difference of every route to dense, as a map and as spans (Fig. 8)."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd

from tread_lab.analysis import paper_tables
from tread_lab.analysis.figures import style
from tread_lab.analysis.figures.points import (
    NUMBERS,
    Array,
    Drawn,
    Points,
    SweepRecords,
    bare_rows,
    cell_points,
    named,
)
from tread_lab.config.errors import UserError
from tread_lab.config.labels import value_text as setting_text
from tread_lab.config.model import depth_of
from tread_lab.records.metric_names import (
    GAP_HELDOUT,
    GAP_TRAIN,
    HELDOUT_LOSS,
    delta_column,
    metric_kind,
    metric_label,
    value_text,
)
from tread_lab.results import (
    ARROW,
    cells_frame,
    interval_text,
    number,
    other_axes,
    outcomes,
    outcomes_text,
    require_metric,
    with_delta,
)

FEWEST = 5  # points; the order of fewer agrees by chance too often for a p or a claim
SMOOTH, NULL_MAPS = 0.25, 9999  # length scale and number of the maps that chance would draw
BASELINE_OF = {GAP_HELDOUT: HELDOUT_LOSS, GAP_TRAIN: HELDOUT_LOSS}
MARGIN = 3  # Fig. 8: a route of 12 blocks should end at block 9 = B - 3 at the latest
ORDER = "Rank correlation with the published differences over {n} common routes: {order}"
Box = tuple[float, float, float, float]  # left, low, width, height


def placements(frame: pd.DataFrame, metric: str) -> Points:
    """Return the cells with exactly one route, from the rows of `trials_frame`.

    The value is the difference to the baseline of the same seed, averaged over seeds, and is there
    **only if every seed of the cell completed**. A row has `start` and `end`, both inclusive.

    Raises:
        UserError: no such metric, or two cells share a route; `panels` splits a frame first.
    """
    require_metric(frame, metric)
    trials = with_delta(frame, metric)
    trials = trials[(trials["role"] == "trial") & (trials["route"] != "dense")]
    trials = trials[~trials["route"].str.contains("+", regex=False)]
    cells = cells_frame(trials.drop_duplicates(["run", "baseline"]))
    shared = cells[cells.duplicated("route")]
    if len(shared):
        where = " and ".join(cells.loc[cells["route"] == shared["route"].iloc[0], "cell"][:2])
        raise UserError(f"route: must be in one cell each, got {where}. Try `panels`.")
    ends = {name: cells[name].astype(int) for name in ("start", "end")}
    return cell_points(cells.assign(**ends), delta_column(metric))


def controls(frame: pd.DataFrame, metric: str) -> Points:
    """Return the controls of the baselines, with their differences to these as `placements`."""
    own = with_delta(frame, metric)
    return cell_points(cells_frame(own[own["role"] == "control"]), delta_column(metric))


def published_placements() -> Points:
    """Return Fig. 8 in its own order (see `paper_tables.FIG8`): another model, data and metric."""
    start, end = zip(*paper_tables.FIG8)
    return Points("delta/FID", bare_rows(start=start, end=end, value=[*paper_tables.FIG8.values()]))


def routes(places: Points) -> list[tuple[int, int]]:
    """Return (start, end) of each placement."""
    return list(zip(places.rows["start"], places.rows["end"]))


def best_route(places: Points) -> str:
    """Return the best route and how many routes can be distinguished from the baseline."""
    metric, rows = metric_label(places.metric), places.rows
    if places.measured.empty:
        return "No route has a number yet."
    if places.best is None:
        return f"{metric} is no measure of quality: no route is best by it."
    best = rows.loc[places.best]
    counts = outcomes(rows["low"], rows["high"], metric_kind(places.metric).sign)
    called = "All are worse; least" if [*counts] == ["worse"] else "Best mean"
    interval = interval_text(places.metric, *best[NUMBERS], over=places.measured_as)
    first = f"{called}: {best['start']}{ARROW}{best['end']}, {metric} {interval}."
    if not counts:
        return f"{first} No intervals: one seed, and no error over images is recorded."
    return f"{first} {outcomes_text(counts, 'routes', places.measured_as)}"


def control_texts(points: Points) -> Iterator[str]:
    """Yield what each control reaches without a route."""
    for _, row in points.measured.iterrows():
        interval = interval_text(points.metric, *row[NUMBERS], over=points.measured_as)
        yield f"The {row['name']}, dense: {metric_label(points.metric)} {interval}."


def panels(frame: pd.DataFrame) -> list[tuple[str, pd.DataFrame]]:
    """Return `frame` split by every axis but the route's: (`rate=0.5`, rows with their baselines).

    A sweep over routes alone is one panel without a name.
    """
    trials = frame[frame["role"] == "trial"]
    axes = [axis for axis in other_axes(frame) if trials[axis].nunique(dropna=False) > 1]
    if not axes:
        return [("", frame)]
    parts = []
    for values, part in trials.groupby(axes, sort=False, dropna=False):
        written = pd.Series(list(values), index=axes, dtype=object).dropna().items()
        settings = [f"{axis}={setting_text(value)}" for axis, value in written]
        name = " ".join(settings) or "as the experiment is"
        rows = frame["run"].isin(part["baseline"]) & (frame["role"] == "baseline")
        rows |= frame["baseline"].isin(part["baseline"]) & (frame["role"] == "control")
        parts.append((name, frame[rows | frame.index.isin(part.index)]))
    return parts


def rank_correlation(x: Collection[float], y: Collection[float]) -> float:
    """Return Spearman's correlation; NaN below three points or without spread."""
    if len(x) < 3 or len(set(x)) < 2 or len(set(y)) < 2:
        return float("nan")
    from scipy.stats import spearmanr  # few figures ask for it, and its import takes a second

    return float(spearmanr(x, y).statistic)


def chance_of_order(x: Array, y: Array, places: Sequence[tuple[int, int]]) -> float:
    """Return p of Spearman's correlation with x under smooth maps; NaN below five points.

    Neighbouring routes have similar values by chance, too. The null hypothesis is therefore that y
    is a draw of a Gaussian process over start and end, with Matern's 3/2 covariance and a length
    scale of a quarter of the blocks that the routes cover; p is the share of draws whose
    correlation is as large, of either sign.
    """
    if len(x) < FEWEST:
        return float("nan")
    from scipy.stats import rankdata

    ends_K2 = np.array(places, dtype=float)
    covered = ends_K2[:, 1].max() - ends_K2[:, 0].min() + 1
    away_KK2 = (ends_K2[:, None] - ends_K2) / (SMOOTH * covered)
    distance_KK = np.sqrt(3 * (away_KK2**2).sum(axis=-1))
    covariance_KK = (1 + distance_KK) * np.exp(-distance_KK) + 1e-9 * np.eye(len(x))
    normal_MK = np.random.default_rng(0).standard_normal((NULL_MAPS, len(x)))
    maps_MK = normal_MK @ np.linalg.cholesky(covariance_KK).T
    ranks_K, ranks_MK = rankdata(x), rankdata(np.vstack([y, maps_MK]), axis=1)
    agreement_M = np.abs((ranks_MK - ranks_K.mean()) @ (ranks_K - ranks_K.mean()))
    return float((agreement_M >= agreement_M[0] - 1e-9).mean())  # the first is that of y


def order_text(
    x: Array,
    y: Array,
    places: Sequence[tuple[int, int]],
    positive: str,
    negative: str = "the opposite of the paper's trend",
) -> str:
    """Return a rank correlation and what it shows: nothing from -0.5 to 0.5, or where p is 0.05 or
    more; empty where there is no correlation."""
    correlation, chance = rank_correlation(x, y), chance_of_order(x, y, places)
    if not np.isfinite(correlation):
        return ""
    shown = positive if correlation > 0 else negative
    if not chance < 0.05 or abs(correlation) <= 0.5:
        shown = "no clear trend"
    p = f" (p = {chance:.2g} among smooth maps)" if np.isfinite(chance) else ""
    return f"{number(correlation)}{p}; {shown}."


def draw_route_grid(
    places: Points, ax: style.Axes, *, scale: pd.Series[float] | None = None
) -> None:
    """Draw one square per route: its start on the y axis from the top, its end on the x axis.

    Args:
        scale: values whose range sets the colours; by default the map's own.
    """
    boxes = [(end - 0.5, start - 0.5, 1.0, 1.0) for start, end in routes(places)]
    scale = places.rows["value"] if scale is None else scale
    _draw_boxes(ax, places, boxes, scale, edge="white", width=0.8)
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
    names = [f"{start}{ARROW}{end}" for start, end in routes(places)]
    if beside is not None and len(beside.rows):
        names += [name.replace(" ", "\n", 1) for name in beside.rows["name"]]
        below = range(len(boxes) + 1, len(names) + 1)
        boxes += [(-0.5, row - 0.38, depth, 0.76) for row in below]
        places = replace(places, rows=pd.concat([places.rows, beside.rows], ignore_index=True))
    scale = places.rows["value"] if scale is None else scale
    _draw_boxes(ax, places, boxes, scale, edge=style.GREY, width=0.4)
    latest_end = depth - MARGIN
    ax.axvline(latest_end + 0.5, color=style.BLACK, linewidth=0.8, linestyle="--", zorder=3)
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
) -> None:
    """Draw a box for each route, coloured by its value; routes without one hatched and lettered.

    The best is outlined, a dot near the right end says that the interval holds zero, and a number
    in italics is of a route without a run. A value
    that its span has no room for stands beside it.
    """
    power, norm = style.power_of_ten(scale), style.centred(scale)
    colours = style.DIFFERENCES[metric_kind(places.metric).sign]
    rows, best = places.rows, places.rows.index == places.best
    texts = style.signed(rows["value"].to_numpy() / 10.0**power)
    guessed = rows.get("seeds", pd.Series(1, rows.index)) == 0
    slant = np.where(guessed, "italic", "normal")
    facts = zip(rows["state"], rows["value"], texts, style.holds_zero(rows), best, slant)
    narrow = len({across for _, _, across, _ in boxes}) > 1  # spans
    for (left, low, across, up), fact in zip(boxes, facts):
        state, value, text, undecided, is_best, slanted = fact
        look = style.STATE_LOOKS.get(state)
        fill = (1.0, 1.0, 1.0) if look else colours(norm(value))
        colour, thickness = (style.GREY, 0.5) if look else (edge, width)
        if is_best:
            colour, thickness = style.BLACK, 1.3
        box = style.Rectangle((left, low), across, up, fc=fill, ec=colour, lw=thickness)
        box.set(hatch=look and look.hatch, zorder=3 if is_best else 2, clip_on=False)
        ax.add_patch(box)
        ink, at = style.ink_on(fill), left + across / 2
        if narrow and across == 1:
            ink, at = style.BLACK, left + 1.4
        plate = {"facecolor": "white", "edgecolor": "none", "pad": 0.7} if look else None
        said: dict[str, Any] = {"ha": "center", "va": "center", "fontsize": 5.5, "zorder": 4}
        said["fontstyle"] = slanted
        ax.text(at, low + up / 2, look.letter if look else text, color=ink, bbox=plate, **said)
        if undecided:
            style.mark_zero(ax, left + across - 0.14, low + 0.2 * up, style.ink_on(fill))
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
    dense = frame.loc[frame["role"] == "baseline", column] if column in frame else pd.Series()
    if not dense.notna().any():  # a loss of other settings than the default has another name
        return ""
    lines = [f"dense baseline: {metric_label(column)} = {value_text(column, dense.mean())}"]
    points = controls(frame, metric)
    for _, row in points.measured.iterrows():
        lines.append(f"{row['name']}: {value_text(points.metric, *row[NUMBERS])}")
    return "\n".join(lines)


def agreement_text(places: Points) -> str:
    """Return whether the routes have the published order.

    Only the order, from better to worse, is compared: metric, network and data differ.
    """
    values = dict(zip(routes(places), places.rows["value"]))
    common = [route for route in paper_tables.FIG8 if np.isfinite(values.get(route, np.nan))]
    sign = metric_kind(places.metric).sign or 1  # published are differences of FID
    ours, theirs = (
        np.array([factor * of[route] for route in common])
        for factor, of in ((sign, values), (1, paper_tables.FIG8))
    )
    same = "routes that are better there tend to be better here"
    opposite = "routes that are better there tend to be worse here"
    order = order_text(theirs, ours, common, same, opposite)
    few = "Too few of the published routes have a number here to compare their order."
    return ORDER.format(n=len(common), order=order) if order else few


def placed(records: SweepRecords) -> Iterator[tuple[str, Points]]:
    """Give each compared metric that two placements have."""
    for metric in records.compared:
        places = placements(records.frame, metric)
        if len(places.measured) > 1:
            yield metric, places


def grids(records: SweepRecords) -> Iterator[Drawn]:
    """Draw where a route starts and ends."""
    for metric, places in placed(records):
        starts, ends = _blocks(places.rows["start"]), _blocks(places.rows["end"])
        if min(len(starts), len(ends)) > 1:
            width = style.COLUMN if len(ends) <= 10 else style.PAGE
            fig, (ax,) = style.figure(width=width, height=1.1 + 0.22 * len(starts))
            draw_route_grid(places, ax)
            ax.set_title(baseline_title(records.frame, metric))
            draw_legend([places], fig)
            yield Drawn(named("route_grid", metric), best_route(places), fig)


def spans(records: SweepRecords) -> Iterator[Drawn]:
    """Draw placement as the paper does: the blocks of each route."""
    for metric, places in placed(records):
        parts = list(records.compared_parts(metric))
        height = 0.9 + 0.135 * max(len(places.rows), len(paper_tables.FIG8))
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
        theirs.set_title(paper_tables.FIG8_TITLE)
        draw_legend(of_parts, fig)
        yield Drawn(named("route_spans", metric), " ".join(captions), fig)
