"""Numbers of cells as texts: one function for each quantity, whoever shows it."""

from __future__ import annotations

import math
from collections.abc import Iterable

import pandas as pd

from tread_lab.frames.columns import COUNT, DELTA, HIGH, LOW, UNIT
from tread_lab.records.metric_names import digits, metric_kind
from tread_lab.records.status import RunState
from tread_lab.specs.units import quantity, with_interval


def metric_numbers(
    metric: str, values: Iterable[float], lows: Iterable[float], highs: Iterable[float]
) -> list[str]:
    """Return `+0.0066 ± 0.0026`, `0.2534`, `8.5 TFLOP`; differences have signs, NaN is empty.

    What has a unit stands without its interval, which tables of costs have no room for.
    """
    signed, unit = metric.startswith(("gap/", DELTA)), metric_kind(metric).unit
    return [
        ""
        if not math.isfinite(value)
        else quantity(value, unit, signed=signed)
        if unit
        else with_interval(value, low, high, signed=signed, digits=digits(metric))
        for value, low, high in zip(values, lows, highs)
    ]


def metric_number(metric: str, value: float, low: float = math.nan, high: float = math.nan) -> str:
    """Return one of `metric_numbers`."""
    return metric_numbers(metric, [value], [low], [high])[0]


def result_texts(cells: pd.DataFrame, metric: str) -> list[str]:
    """Return `metric_numbers` of cells or trials; empty unless all seeds of a row completed."""
    done = cells["state"] == RunState.COMPLETED
    none = pd.Series(math.nan, index=cells.index)
    ends = (cells.get(metric + end, none) for end in (LOW, HIGH))
    return metric_numbers(metric, cells[metric].where(done), *ends)


def intervals_over(cells: pd.DataFrame, metric: str) -> list[str]:
    """Return what the intervals in `result_texts` of cells are over; empty where there is none."""
    units = cells[metric + UNIT].where(cells["state"] == RunState.COMPLETED, "")
    return over_texts(metric, cells[metric + COUNT], units)


def over_texts(metric: str, counts: Iterable[float], units: Iterable[str]) -> list[str]:
    """Return `over_text` of each number; empty for a metric with a unit."""
    bare = bool(metric_kind(metric).unit)
    return ["" if bare else over_text(n, unit) for n, unit in zip(counts, units)]


def over_text(n: float, unit: str) -> str:
    """Return `3 seeds`, or `32 images of 1 seed`."""
    return {"seeds": f"{n:.0f} seeds", "images": f"{n:.0f} images of 1 seed"}.get(unit, "")
