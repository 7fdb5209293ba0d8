"""The terminal: one line at a time on stderr, apart from what scripts read on stdout."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence

from rich.console import Console

ROWS = 40  # longer tables show their head and count the rest
_width = None if sys.stderr.isatty() else 160  # a log file has room
out = Console(stderr=True, highlight=False, soft_wrap=True, width=_width)


def say(text: str) -> None:
    """One line for people, apart from what scripts read on stdout."""
    out.print(text, markup=False)


def show_pairs(pairs: Sequence[tuple[str, str]]) -> None:
    """Names and values, one a line, on stdout."""
    width = max(len(name) for name, _ in pairs)
    for name, value in pairs:
        print(f"{name:<{width}}  {value}")


def metrics_line(metrics: Mapping[str, float]) -> str:
    """`name value, name value`."""
    return ", ".join(f"{name} {value:.6g}" for name, value in metrics.items()) or "drawn"
