"""Numbers and names in sentences: three digits, units, real minus signs and arrows, intervals."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import numpy as np
from numpy.typing import ArrayLike

from tread_lab.analysis.figures.style import MINUS, label
from tread_lab.frames import metric_number
from tread_lab.records.metric_names import digits
from tread_lab.specs.units import with_interval

_MOST = 6  # names of a list
ARROW = "\N{RIGHTWARDS ARROW}"


def number(value: float, *, signed: bool = False) -> str:
    """Return three digits with a real minus sign."""
    text = f"{value:+.3g}" if signed else f"{value:.3g}"
    return text.replace("-", MINUS)


def span(metric: str, value: float, low: float, high: float, over: str = "") -> str:
    """Return `+0.0023 ± 0.0007 (95% over 3 seeds)`; the interval if there is one."""
    text = with_interval(value, low, high, signed=True, digits=digits(metric)).replace("-", MINUS)
    return f"{text} ({over or '95% interval'})" if np.isfinite(low) else text


def result(metric: str, value: float, low: float = np.nan, high: float = np.nan) -> str:
    """Return `metric_number` with a real minus sign."""
    return metric_number(metric, value, low, high).replace("-", MINUS)


def outcomes(low: ArrayLike, high: ArrayLike, sign: float) -> dict[str, int]:
    """Return how many intervals of differences show a cell to be better, worse, or neither.

    Args:
        sign: 1 where lower is better, -1 where higher is.
    """
    low, high = np.asarray(low), np.asarray(high)
    below, above = int((high < 0).sum()), int((low > 0).sum())
    better, worse = (below, above) if sign > 0 else (above, below)
    rest = int(np.isfinite(low).sum()) - better - worse
    counts = {"better": better, "worse": worse, "cannot be distinguished from it": rest}
    return {outcome: count for outcome, count in counts.items() if count}


def outcomes_text(counts: Mapping[str, int], cells: str, over: str = "") -> str:
    """Return `Compared with dense, each by its own interval (95% over 3 seeds), of 4 routes: ...`.

    Of many cells some intervals lie on one side of zero by chance.
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


def metric_text(metric: str) -> str:
    """Return what an axis calls a metric, in one line and without the marks of formulas."""
    return label(metric).replace("$", "").replace("\n", "")


def trend(
    correlation: float,
    chance: float,
    positive: str,
    negative: str = "the opposite of the paper's trend",
) -> str:
    """Return what a rank correlation shows; nothing from -0.5 to 0.5, or where p is 0.05 or more.

    Args:
        chance: its p, NaN where too few points have one.
    """
    if not chance < 0.05 or abs(correlation) <= 0.5:
        return "no clear trend"
    return positive if correlation > 0 else negative
