"""The terminal: answers on stdout, progress and notices on stderr, tables that fit their width."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping, Sequence

from rich.console import Console
from rich.table import Table
from rich.text import Text

from tread_lab.records.metric_names import value_text
from tread_lab.specs.errors import UserError

ROWS = 40  # longer tables show their head and count the rest
_FILE_WIDTH = 160  # columns of a log file
_GAP = 2  # columns of space beside each column of a table


def _console(*, stderr: bool) -> Console:
    stream = sys.stderr if stderr else sys.stdout
    width = None if stream.isatty() else _FILE_WIDTH
    return Console(stderr=stderr, highlight=False, soft_wrap=True, width=width)


answers, notices = _console(stderr=False), _console(stderr=True)


def say(text: str) -> None:
    """Print a line for people on stderr."""
    notices.print(text, markup=False)


def shown_problems(problems: Sequence[UserError]) -> int:
    """Print what disabled a part of the answer on stderr; return the command's exit code."""
    show_lines(notices, (f"tread-lab: {problem}" for problem in problems))
    return max((problem.exit_code for problem in problems), default=0)


def answer(text: str) -> None:
    """Print a line of the command's answer on stdout."""
    answers.print(text, markup=False)


def show_lines(out: Console, lines: Iterable[str]) -> None:
    """Print lines on `answers` or `notices`."""
    for line in lines:
        out.print(line, markup=False)


def show_pairs(pairs: Sequence[tuple[str, str]]) -> None:
    """Print names and values on stdout, one pair per line."""
    width = max(len(name) for name, _ in pairs)
    for name, value in pairs:
        print(f"{name:<{width}}  {value}")


def metrics_line(metrics: Mapping[str, float]) -> str:
    """Return `name value, name value`."""
    return (
        ", ".join(f"{name} {value_text(name, value)}" for name, value in metrics.items()) or "drawn"
    )


def fitted(
    heads: Sequence[str], rows: Sequence[Sequence[str]], *, drop: Sequence[str], width: int
) -> Table:
    """Return a table that fits `width`: columns are dropped in the order of `drop` until it does.

    If the columns that must stay do not fit either, each row is stacked, one value per line. No
    value is ever cut.
    """
    wide = {
        head: max([len(head), *(len(row[k]) for row in rows)]) + _GAP
        for k, head in enumerate(heads)
    }
    kept = list(heads)
    for head in drop:
        if sum(wide[name] for name in kept) > width:
            kept.remove(head)
    if sum(wide[name] for name in kept) > width:
        return _stacked(heads, rows, kept)
    table = Table(box=None, padding=(0, 1))
    for head in kept:
        table.add_column(Text(head), no_wrap=True)
    for row in rows:
        table.add_row(*(Text(text) for head, text in zip(heads, row) if head in kept))
    if len(kept) < len(heads):
        left_out = ", ".join(head for head in heads if head not in kept)
        table.caption = Text(f"not shown: {left_out}")  # no markup: names have brackets
        table.caption_justify = "left"
    return table


def _stacked(heads: Sequence[str], rows: Sequence[Sequence[str]], kept: Sequence[str]) -> Table:
    """Return each row on lines of its own, the first value at the margin."""
    table = Table(box=None, padding=(0, 1), show_header=False)
    table.add_column(overflow="fold")
    for row in rows:
        first, *others = [text for head, text in zip(heads, row) if head in kept and text]
        table.add_row(Text("\n  ".join([first, *others])))
    return table
