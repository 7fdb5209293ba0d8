"""The smooth map of placements: what the gaps of neighbouring routes say about each of them."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from tread_lab.analysis.figures import style
from tread_lab.analysis.figures.placements import (
    baseline_title,
    best_route,
    draw_legend,
    draw_route_grid,
    panels,
    placements,
)
from tread_lab.analysis.figures.points import NUMBERS, Drawn, Points, SweepRecords, named
from tread_lab.config.model import depth_of
from tread_lab.config.units import counted
from tread_lab.records.metric_names import GAP_HELDOUT
from tread_lab.records.run_state import RunState
from tread_lab.results import ARROW, interval_text, joined, number, other_axes
from tread_lab.results.smooth_map import FEWEST, smooth_map

PLACE = ["start", "end", "rate"]
POSTERIOR = "95% of the posterior"
DRAWN = 250  # cells, which take some seconds; the time grows with the third power
LIKELY = 3  # cells that a caption names
RARELY = 0.05  # a cell that is best more rarely is not named


@dataclass(frozen=True)
class Smoothed(Points):
    """The smooth map at one rate, in the form of `placements`, and what it proposes.

    Rows hold every route between the first and the last swept start and end, as long as swept ones,
    measured or not, with the columns of `smooth_map` and `seeds`, how many were measured.
    """

    title: str = ""

    @property
    def best(self) -> Any:
        """The index of the lowest posterior mean among the routes with a run."""
        return self.rows.loc[self.rows["seeds"] > 0, "value"].idxmin()

    @property
    def caption(self) -> str:
        """The lowest cells with their probabilities, of those with a run and of those without."""
        own = self.rows[self.rows["seeds"] > 0]
        lowest = own.loc[self.best]
        chances = _chances(own, "best", "{name} {chance:.0%}")
        open_ = (self.rows["seeds"] == 0) & (self.rows["best_of_all"] >= RARELY)
        guess = _chances(self.rows[open_], "best_of_all", "{name} ({chance:.0%})")
        most = counted(int(own["seeds"].max()), "seed")
        return (
            f"Gaussian process over start, end and rate, here with {len(own)} measured routes of up"
            f" to {most}; numbers are posterior means. {lowest['name']} has the lowest of these,"
            f" {interval_text(self.metric, *lowest[NUMBERS], over=POSTERIOR)}. Probability"
            f" of being the lowest measured cell: {joined(chances)}."
            + f" Probability of a route without a run to be the lowest of all: {joined(guess)}."
            * bool(guess)
        )


def smoothed(frame: pd.DataFrame) -> Iterator[Smoothed]:
    """Give the smooth maps of a sweep's held-out gaps, one for each rate.

    Rates share one Gaussian process; each value of another axis has its own. There is no map below
    `FEWEST` measured routes or above `DRAWN` cells.
    """
    if GAP_HELDOUT not in frame:
        return
    trials = frame[frame["role"] == "trial"]
    others = [axis for axis in other_axes(frame) if axis != "rate"]
    if any(trials[axis].nunique(dropna=False) > 1 for axis in others):
        parts = [] if len(found := panels(frame)) < 2 else found
        for name, part in parts:
            for one in smoothed(part.assign(**dict.fromkeys(others, ""))):
                yield Smoothed(one.metric, one.rows, one.measured_as, name)
        return
    single = trials[trials["start"].notna() & ~trials["route"].str.contains("+", regex=False)]
    done = single[(single["state"] == RunState.COMPLETED) & single[GAP_HELDOUT].notna()]
    gaps = done.groupby(["seed", *PLACE], sort=False)[GAP_HELDOUT]
    if done.duplicated(["seed", *PLACE]).any() or done[PLACE].drop_duplicates().shape[0] < FEWEST:
        return
    ends = [range(single[name].min(), single[name].max() + 1) for name in PLACE[:2]]
    cells = itertools.product(*ends, sorted(done["rate"].unique()))
    length = single["end"] - single["start"]
    within = [cell for cell in cells if length.min() <= cell[1] - cell[0] <= length.max()]
    places = pd.MultiIndex.from_tuples(within, names=PLACE)
    if len(places) > DRAWN:
        return
    wide = gaps.first().unstack("seed").reindex(places)
    at = np.array(places.to_list(), dtype=np.float64)
    depth = depth_of(str(frame["model"].iloc[0]))
    found_map = smooth_map(at, wide.to_numpy(np.float64).T, depth=depth)
    names = [f"{start}{ARROW}{end}" for start, end, _ in places]
    rows = found_map.rename(columns={"mean": "value"}).assign(
        **{name: places.get_level_values(name) for name in PLACE},
        name=names,
        seeds=wide.notna().sum(axis=1).to_numpy(),
        state="completed",
    )
    rates = done["rate"].astype(float).unique().tolist()
    for rate in rates:
        title = f"rate={number(rate)}" if len(rates) > 1 else ""
        yield Smoothed(GAP_HELDOUT, rows[rows["rate"] == rate], POSTERIOR, title)


def maps(records: SweepRecords) -> Iterator[Drawn]:
    """Draw the measured gaps beside the smooth map, in the same colours."""
    for found in smoothed(records.frame):
        frame = records.frame
        if found.title:
            frame = dict(panels(frame)).get(found.title, frame)
        raw = placements(frame, GAP_HELDOUT)
        starts = found.rows["start"].nunique()
        fig, (left, right) = style.figure(width=style.PAGE, height=1.2 + 0.22 * starts, columns=2)
        scale = pd.concat([raw.rows["value"], found.rows["value"]])
        draw_route_grid(raw, left, scale=scale)
        draw_route_grid(found, right, scale=scale)
        left.set_title(f"measured; {baseline_title(frame, GAP_HELDOUT)}".split("\n")[0])
        right.set_title("smooth map; italics: routes without a run")
        draw_legend([raw, found], fig)
        caption = f"Measured: {best_route(raw)} Smooth map: {found.caption}"
        title = f"smooth_map-{found.title}" if found.title else "smooth_map"
        yield Drawn(named(title, GAP_HELDOUT), caption, fig)


def _chances(rows: pd.DataFrame, column: str, text: str) -> list[str]:
    """Return the likeliest cells of a column of probabilities, each in words."""
    order = rows.sort_values(column, ascending=False).head(LIKELY)
    likely = order[order[column] >= min(RARELY, order[column].max())]
    facts = zip(likely["name"], likely[column])
    return [text.format(name=name, chance=chance) for name, chance in facts]
