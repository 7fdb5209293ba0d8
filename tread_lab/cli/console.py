"""The terminal: answers on stdout, progress and notices on stderr, tables that fit their width."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from tread_lab.records.metric_names import value_text

ROWS = 40  # longer tables show their head and count the rest
_FILE_WIDTH = 160  # columns of a log file


def _console(*, stderr: bool) -> Console:
    stream = sys.stderr if stderr else sys.stdout
    width = None if stream.isatty() else _FILE_WIDTH
    return Console(stderr=stderr, highlight=False, soft_wrap=True, width=width)


answers, notices = _console(stderr=False), _console(stderr=True)


def say(*lines: str) -> None:
    """Print lines for people on stderr."""
    for line in lines:
        notices.print(line, markup=False)


def show_pairs(pairs: Sequence[tuple[str, str]]) -> None:
    """Print names and values on stdout, one pair per line."""
    width = max(len(name) for name, _ in pairs)
    for name, value in pairs:
        print(f"{name:<{width}}  {value}")


def show_facts(facts: Mapping[str, Any], *, as_json: bool) -> None:
    """Print facts on stdout, as JSON or one per line."""
    if as_json:
        print(json.dumps(facts, indent=1))
    else:
        show_pairs([(name.replace("_", " "), str(value)) for name, value in facts.items()])


def metrics_line(metrics: Mapping[str, float]) -> str:
    """Return `name value, name value`."""
    return (
        ", ".join(f"{name} {value_text(name, value)}" for name, value in metrics.items()) or "drawn"
    )


def table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> Table:
    """Return a table; narrow terminals wrap cells instead of cutting values."""
    made = Table(box=None, padding=(0, 1))
    for head in heads:
        made.add_column(Text(head), overflow="fold")
    for row in rows:
        made.add_row(*map(Text, row))
    return made
