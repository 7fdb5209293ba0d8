"""Runs, cells, durations and sizes in a few words."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

from tread_lab.records import names
from tread_lab.spec.run import RunSpec


def run_label(spec: RunSpec) -> str:
    """A run in a few words."""
    about = names.parameters(spec)
    parts = [f"{about['route']} at {about['selection_rate']:g}" if spec.routes else "dense"]
    parts += [str(about["bypass"])] if about["bypass"] else []
    parts += [f"loss {about['loss']}"] if about["loss"] else []
    parts += [f"from {str(about['starts_from'])[:6]}"] if spec.init_from else []
    return ", ".join([*parts, f"seed {spec.seed}"])


def cell_text(cell: Mapping[str, Any]) -> str:
    """`start=2, end=8`."""
    return ", ".join(f"{key}={value}" for key, value in cell.items())


def further_axes(axes: Iterable[str]) -> list[str]:
    """Axes that the columns `route` and `rate` do not show, each once."""
    shown = ("start", "end", "route", "routes", "rate")
    return [axis for axis in dict.fromkeys(axes) if axis not in shown]


def counts_text(states: Counter[str]) -> str:
    """`3 completed, 1 failed`, the most frequent first."""
    return ", ".join(f"{count} {state}" for state, count in states.most_common())


def duration(seconds: float) -> str:
    """Seconds as people say them."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    if seconds < 5400:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.1f} h"


def bytes_text(count: float) -> str:
    """A size as people say it."""
    for unit in ("B", "kB", "MB", "GB", "TB"):
        if count < 1000:
            return f"{count:.0f} {unit}"
        count /= 1000
    return f"{count:.0f} PB"
