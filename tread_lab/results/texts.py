"""Numbers and names of cells in words, the same for terminal, page, tables, figures and MLflow."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike

from tread_lab.records.metric_names import MINUS, metric_kind, value_text
from tread_lab.records.run_state import RunState
from tread_lab.results.cells import COUNT, HIGH, LOW, UNIT

ARROW = "\N{RIGHTWARDS ARROW}"
UNDECIDED = "cannot be distinguished from it"
_MOST = 6  # names of a list


def result_texts(cells: pd.DataFrame, metric: str) -> list[str]:
    """Return `value_text` of cells or trials; empty unless all seeds of a row completed."""
    done = cells["state"] == RunState.COMPLETED
    columns = [cells[metric].where(done)]
    columns += [cells[metric + end] for end in (LOW, HIGH) if metric + end in cells]
    return [value_text(metric, *numbers) for numbers in zip(*columns)]


def intervals_over(cells: pd.DataFrame, metric: str) -> list[str]:
    """Return the unit of the intervals in `result_texts`: `3 seeds`, `32 images of 1 seed` (held
    out), `500 samples of 1 seed`.

    Empty without an interval, or for values with a unit.
    """
    if metric_kind(metric).unit:
        return [""] * len(cells)
    units = cells[metric + UNIT].where(cells["state"] == RunState.COMPLETED, "")
    told = {unit: "{:.0f} " + unit + " of 1 seed" for unit in ("images", "samples")}
    told |= {"seeds": "{:.0f} seeds", "": ""}
    return [told.get(unit, "").format(n) for n, unit in zip(cells[metric + COUNT], units)]


def measured_as(cells: pd.DataFrame, metric: str) -> str:
    """Return the unit of the intervals of `cells_frame` rows: `95% over 3 seeds`, or empty."""
    over = sorted({*intervals_over(cells, metric)} - {""})
    return f"95% over {' or '.join(over)}" if over else ""


def interval_text(metric: str, value: float, low: float, high: float, *, over: str = "") -> str:
    """Return `+0.0023 ± 0.0007 (95% over 3 seeds)`; the interval if there is one."""
    text = value_text(metric, value, low, high)
    return f"{text} ({over or '95% interval'})" if np.isfinite(low) else text


def number(value: float, *, signed: bool = False) -> str:
    """Return a number other than a metric, with three digits and a real minus sign."""
    return f"{value:{'+' if signed else ''}.3g}".replace("-", MINUS)


def outcomes(low: ArrayLike, high: ArrayLike, sign: float) -> dict[str, int]:
    """Return how many intervals of differences are better, worse, or contain zero.

    Args:
        sign: 1 where lower is better, -1 where higher is.
    """
    low, high = np.asarray(low), np.asarray(high)
    below, above = int((high < 0).sum()), int((low > 0).sum())
    better, worse = (below, above) if sign > 0 else (above, below)
    rest = int(np.isfinite(low).sum()) - better - worse
    counts = {"better": better, "worse": worse, UNDECIDED: rest}
    return {outcome: count for outcome, count in counts.items() if count}


def outcomes_text(counts: Mapping[str, int], cells: str, over: str = "") -> str:
    """Return `Compared with dense, each by its own interval (95% over 3 seeds), of 4 routes: ...`.

    Among many cells, some intervals exclude zero by chance.
    """
    texts = ", ".join(f"{count} {outcome}" for outcome, count in counts.items())
    own = f"each by its own interval ({over or '95%'})"
    return f"Compared with dense, {own}, of {sum(counts.values())} {cells}: {texts}."


def routed(name: str) -> str:
    """Return `2->8` with a real arrow."""
    return name.replace("->", ARROW)


def listed(texts: Sequence[str]) -> str:
    """Return `a, b, c`; of more than six the first, `and 3 more`."""
    more = f" and {len(texts) - _MOST} more" if len(texts) > _MOST else ""
    return ", ".join(texts[:_MOST]) + more


def joined(names: Iterable[str]) -> str:
    """Return `a, b and c`; of more than six names the first, `and 3 more`."""
    texts = [routed(name) for name in names]
    if 1 < len(texts) <= _MOST:
        return f"{', '.join(texts[:-1])} and {texts[-1]}"
    return listed(texts)
