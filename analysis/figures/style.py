"""One look for all figures: sizes, colours for every eye, states told apart by hatch and letter."""

from __future__ import annotations

import io
import math
import textwrap
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
import pandas as pd
from cycler import cycler
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.cm import ScalarMappable
from matplotlib.colors import Colormap, LinearSegmentedColormap, Normalize, TwoSlopeNorm, to_hex
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch, Rectangle
from matplotlib.ticker import ScalarFormatter
from matplotlib.transforms import Bbox
from numpy.typing import ArrayLike, NDArray

from tread_lab.records.durable import replacing
from tread_lab.records.metric_names import MINUS, metric_kind, metric_label
from tread_lab.records.run_state import RunState

__all__ = [
    "Axes",
    "Figure",
    "Line2D",
    "Normalize",
    "Patch",
    "Rectangle",
    "ScalarMappable",
]

COLUMN, PAGE = 3.3, 6.9  # widths of a printed column and page, inches

# The palettes of Okabe and Ito and of Tol, told apart by every kind of colour vision.
BLUE, ORANGE, GREEN, PINK = "#0072B2", "#D55E00", "#009E73", "#CC79A7"
BLACK, GREY = "#000000", "#8C8C8C"

# Curves and families have colours of their own: blue and orange mean better and worse.
INDIGO, OLIVE, WINE, TEAL = "#332288", "#999933", "#882255", "#44AA99"
CYCLE = (GREEN, PINK, INDIGO, OLIVE, WINE, TEAL)

# Where a legend of many entries stands: beside the axes.
BESIDE: dict[str, Any] = {"loc": "center left", "bbox_to_anchor": (1.0, 0.5), "labelspacing": 0.25}
WIDEST = 44  # characters in a line of a cell's name
LONGEST = 26  # characters in a line of an axis
MANY = 8  # entries that a legend has room for inside the axes

PURPLE = "#762A83"
BETTER_TO_WORSE = LinearSegmentedColormap.from_list("better_to_worse", [BLUE, "#F7F7F7", ORANGE])
LESS_TO_MORE = LinearSegmentedColormap.from_list("less_to_more", [PURPLE, "#F7F7F7", "#1B7837"])
DIFFERENCES = {1: BETTER_TO_WORSE, -1: BETTER_TO_WORSE.reversed(), 0: LESS_TO_MORE}  # by sign
SEQUENTIAL: Colormap = matplotlib.colormaps["viridis"]

STYLE: dict[Any, Any] = {
    "font.family": "DejaVu Sans",
    "font.size": 7,
    "axes.titlesize": 7.5,
    "axes.labelsize": 7.5,
    "xtick.labelsize": 6.5,
    "ytick.labelsize": 6.5,
    "legend.fontsize": 6.5,
    "legend.frameon": False,
    "legend.handlelength": 1.4,
    "axes.linewidth": 0.6,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.prop_cycle": cycler(color=CYCLE),
    "axes.titlelocation": "left",
    "axes.formatter.useoffset": False,  # whole numbers at ticks, however close together
    "xtick.major.width": 0.6,
    "ytick.major.width": 0.6,
    "xtick.major.size": 2.5,
    "ytick.major.size": 2.5,
    "lines.linewidth": 1.1,
    "lines.markersize": 3.5,
    "errorbar.capsize": 1.5,
    "hatch.linewidth": 0.5,
    "image.interpolation": "nearest",
    "pdf.fonttype": 42,
    "figure.dpi": 150,
    "figure.constrained_layout.use": True,
}


@dataclass(frozen=True)
class StateLook:
    """Look of a trial without a number: letter, hatch and legend text."""

    letter: str
    hatch: str
    text: str


_HATCHES = {
    RunState.FAILED: "/////",
    RunState.DIVERGED: "xxxxx",
    RunState.STOPPED: "-----",
    RunState.RUNNING: ".....",
    RunState.INTERRUPTED: ".....",
    RunState.PENDING: ".....",
}
STATE_LOOKS: dict[str, StateLook] = {
    **{state: StateLook(state.sign, hatch, state.label) for state, hatch in _HATCHES.items()},
    "unmeasured": StateLook("?", "", "not measured"),
    "uncompared": StateLook("B", "/////", "its baseline has no result"),
}


def figure(
    *, width: float = COLUMN, height: float = 2.4, rows: int = 1, columns: int = 1
) -> tuple[Figure, list[Axes]]:
    """Return an empty figure in the house style and its axes, row by row; sizes in inches."""
    matplotlib.rcParams.update(STYLE)
    fig = Figure(figsize=(width, height))
    axes = fig.subplots(rows, columns, squeeze=False)
    return fig, list(axes.flat)


def save(fig: Figure, folder: Path, name: str) -> list[Path]:
    """Write `name`.png (300 dpi) and `name`.pdf, each atomically.

    Both have the same layout.

    Raises:
        UserError: the folder cannot be written.
    """
    paths = []
    for kind, metadata in (("png", {"Software": None}), ("pdf", {"CreationDate": None})):
        path = folder / f"{name}.{kind}"
        with replacing(path) as temporary:
            fig.savefig(temporary, format=kind, dpi=300, metadata=metadata)
        fig.set_layout_engine("none")
        paths.append(path)
    return paths


@dataclass(frozen=True)
class Picture:
    """A drawn figure for notebooks, small enough to be stored."""

    png: bytes

    def __repr__(self) -> str:
        return ""

    def _repr_png_(self) -> bytes:
        return self.png


def show(fig: Figure, *, dpi: int = 144) -> Picture:
    """Return the figure as a deterministic picture, the last expression of a notebook cell."""
    buffer = io.BytesIO()
    fig.savefig(buffer, format="png", dpi=dpi, metadata={"Software": None})
    return Picture(buffer.getvalue())


def centred(values: ArrayLike) -> Normalize:
    """Return a colour scale for differences, symmetric around white at zero."""
    reach = _largest(values) or 1.0
    return TwoSlopeNorm(0.0, -reach, reach)


def power_of_ten(values: ArrayLike) -> int:
    """Return k, a multiple of 3, for which the largest |value| / 10^k is in 1..1000; 0 from 0.1."""
    top = _largest(values)
    return 0 if top == 0 or 0.1 <= top < 1000 else 3 * math.floor(math.log10(top) / 3)


def bars(points: pd.DataFrame) -> NDArray[np.float64]:
    """Return [2, n] lengths of error bars, 0 without an interval."""
    value, low, high = points[["value", "low", "high"]].to_numpy(float).T
    lengths: NDArray[np.float64] = np.nan_to_num(np.stack([value - low, high - value]))
    return lengths


def times(power: int) -> str:
    """Return the label suffix for values divided by 10^power: ` (x 10^-3)`; empty for 0."""
    return rf" ($\times 10^{{{power}}}$)" if power else ""


def scale_axis(axis: Axis, text: str, power: int) -> None:
    """Name an axis whose ticks are divided by 10^power."""
    axis.set_label_text(text)
    if power:
        ticks = ScalarFormatter(useOffset=False)
        ticks.set_powerlimits((power, power))
        axis.set_major_formatter(ticks)
        axis.get_offset_text().set_visible(False)  # the text says it


def value_axis(axis: Axis, metric: str, values: ArrayLike) -> None:
    """Name an axis by its metric and the power of ten by which its ticks are divided."""
    power = power_of_ten(values)
    scale_axis(axis, label(metric) + times(power), power)


_ZERO: dict[str, Any] = {"marker": ".", "markersize": 3, "linestyle": "none"}


def shade(share: float) -> str:
    """Return a sequential colour as `#rrggbb`; 0 is the darkest."""
    return to_hex(SEQUENTIAL(share))


def holds_zero(points: pd.DataFrame) -> pd.Series[bool]:
    """Return which intervals contain zero."""
    return (points["low"] <= 0) & (points["high"] >= 0)


def mark_zero(ax: Axes, x: float, y: float, colour: str) -> None:
    """Draw the dot of a value whose interval contains zero."""
    ax.plot(x, y, color=colour, zorder=5, **_ZERO)


def zero_legend(points: pd.DataFrame) -> list[Line2D]:
    """Return the legend entry of `mark_zero`, if any interval contains zero."""
    entry = Line2D([], [], color=BLACK, label="95% interval holds zero", **_ZERO)
    return [entry] if holds_zero(points).any() else []


def colour_bar(ax: Axes, drawn: ScalarMappable, text: str, *, power: int = 0) -> None:
    """Add the colour bar of a map; its ticks are divided by 10^power."""
    bar = ax.figure.colorbar(drawn, ax=ax, pad=0.02, aspect=28)
    bar.outline.set_visible(False)
    scale_axis(bar.ax.yaxis, text + times(power), power)


def curve_look(k: int, *, dense: bool) -> tuple[str, str]:
    """Return format and colour of curve number k; dense ones are black and dashed."""
    return ("--D", BLACK) if dense else ("-" + "os^vP"[k % 5], CYCLE[k % len(CYCLE)])


def signed(values: NDArray[np.float64]) -> list[str]:
    """Return differences with a sign and as many digits as the largest needs; blank for NaN."""
    top = _largest(values)
    digits = 2 if top < 1 else 1 if top < 100 else 0
    texts = (f"{value:+.{digits}f}" if np.isfinite(value) else "" for value in values)
    return [text.replace("-", MINUS) for text in texts]


def difference_colour(metric: str, value: float) -> str:
    """Return blue for better than the baseline, orange for worse, grey for neither."""
    sign = metric_kind(metric).sign
    return GREY if sign == 0 or value == 0 else BLUE if sign * value < 0 else ORANGE


def draw_point(
    ax: Axes, x: float, y: float, colour: str, *, hollow: bool = False, **look: Any
) -> None:
    """Draw a dot with its error bars."""
    fill = "white" if hollow else colour
    ax.errorbar([x], [y], color=colour, markerfacecolor=fill, **({"fmt": "o"} | look))


def label(metric: str) -> str:
    """Return `metric_label` for an axis, a long label in two lines."""
    text = metric_label(metric)
    return text.replace("@", "\n@", 1) if len(text) > LONGEST else text


def _largest(values: ArrayLike) -> float:
    array = np.abs(np.asarray(values, dtype=float))
    finite = array[np.isfinite(array)]
    return float(finite.max()) if finite.size else 0.0


def state_legend(states: Iterable[str]) -> list[Patch]:
    """Return one legend entry per distinct look of `states`."""
    looks = {STATE_LOOKS[s].text: STATE_LOOKS[s] for s in states if s in STATE_LOOKS}
    return [
        Patch(fc="white", ec=GREY, lw=0.5, hatch=look.hatch, label=f"{look.letter} {text}")
        for text, look in looks.items()
    ]


def mark_state(ax: Axes, x: float, state: str) -> None:
    """Draw the letter of a state at the lower edge, in place of a missing number."""
    plate = {"fc": "white", "ec": GREY, "lw": 0.5, "pad": 1.5}
    look: dict[str, Any] = {"ha": "center", "va": "center", "fontsize": 6.5, "bbox": plate}
    ax.text(x, 0.05, STATE_LOOKS[state].letter, transform=ax.get_xaxis_transform(), **look)


def cost_axis(ax: Axes, costs: Iterable[float]) -> None:
    """Use a logarithmic x-axis if positive costs span a factor of 3 or more."""
    known = [cost for cost in costs if np.isfinite(cost)]
    if known and max(known) >= 3 * min(known) > 0:
        ax.set_xscale("log")
    else:
        ax.locator_params(axis="x", nbins=4)


def legend(ax: Axes, handles: Sequence[Any] | None = None) -> None:
    """Add a legend, inside the axes for up to `MANY` entries, else beside them."""
    handles = ax.get_legend_handles_labels()[0] if handles is None else handles
    ax.legend(handles=handles, **(BESIDE if len(handles) > MANY else {"loc": "best"}))


def name_ends(ax: Axes, ends: Sequence[tuple[float, float, str, Any]]) -> None:
    """Label curves at their ends (x, y, name, colour), without overlaps."""
    from scipy.optimize import isotonic_regression  # its import takes half a second

    ax.autoscale_view()
    ends = sorted(ends, key=lambda end: end[1])
    to_axes = ax.transData + ax.transAxes.inverted()
    heights = to_axes.transform([end[:2] for end in ends])[:, 1]
    line = 0.11 / (ax.figure.get_figheight() - 0.6)  # type: ignore[union-attr]
    steps = line * np.arange(len(ends))
    heights = isotonic_regression(heights - steps).x + steps
    for (x, y, name, colour), height in zip(ends, heights):
        look = {"arrowstyle": "-", "color": colour, "linewidth": 0.5, "relpos": (0, 0.5)}
        look |= {"patchA": None, "shrinkA": 1}
        place: dict[str, Any] = {"xytext": (1.04, height), "textcoords": "axes fraction"}
        ax.annotate(arrow(name), (x, y), va="center", fontsize=6.5, arrowprops=look, **place)


def name_points(ax: Axes, points: Iterable[tuple[float, float, str]]) -> None:
    """Label points (x, y, name); a label that would overlap others is omitted."""
    points = list(points)
    ax.figure.draw_without_rendering()  # type: ignore[union-attr]  # fixes the layout
    dots = ax.transData.transform([point[:2] for point in points])
    taken = [Bbox.from_extents(x - 4, y - 4, x + 4, y + 4) for x, y in dots]
    for x, y, name in points:
        for dx, dy in ((1, 1), (1, -1), (-1, 1), (-1, -1)):
            sides = {"ha": "left" if dx > 0 else "right", "va": "bottom" if dy > 0 else "top"}
            look: dict[str, Any] = {"fontsize": 5.5, "textcoords": "offset points", **sides}
            text = ax.annotate(arrow(name), (x, y), (2 * dx, 1.5 * dy), **look)
            box = text.get_window_extent()
            if not any(box.overlaps(other) for other in taken):
                taken.append(box)
                break
            text.remove()


def legend_height(entries: int) -> float:
    """Return the height, in inches, of a figure with a legend of `entries` beside it."""
    return max(2.3, 0.5 + 0.14 * entries)


def arrow(text: str) -> str:
    """Return the name of a cell with an arrow for `->`, wrapped to at most three lines."""
    lines = textwrap.fill(text, WIDEST, max_lines=3, placeholder=" \u2026")
    return lines.replace("->", r"$\to$")


def ink_on(colour: Sequence[float]) -> str:
    """Return black or white, whichever has more contrast on an RGB(A) colour (WCAG 2, 1.4.3)."""
    light = [v / 12.92 if v <= 0.04045 else ((v + 0.055) / 1.055) ** 2.4 for v in colour[:3]]
    luminance = 0.2126 * light[0] + 0.7152 * light[1] + 0.0722 * light[2]
    return "white" if 1.05 / (luminance + 0.05) > (luminance + 0.05) / 0.05 else BLACK
