"""Progress of one long piece of work: a bar on a terminal, a line now and then in a log."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

from rich.progress import BarColumn, Progress, TextColumn

from tread_lab.specs.units import duration
from tread_lab.terminal.console import notices, say

T = TypeVar("T")
_LINE_SECONDS = 20.0  # between two lines of progress in a log
MIN_SECONDS = 2.0  # no time left is shown before


def shown(
    steps: Iterable[T],
    noun: str,
    line: Callable[[T, float], tuple[int, int, str]],
) -> Iterator[T]:
    """Yield the steps of the work, and show how far it is.

    Args:
        noun: what stands before the bar.
        line: what is done after a step and so many seconds, all there is, and both in words.
    """
    started = last_line = time.monotonic()
    with Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.fields[note]}"),
        console=notices,
        transient=True,
        disable=not notices.is_terminal,
    ) as bars:
        bar = bars.add_task(noun, total=None, note="")
        for step in steps:
            now = time.monotonic()
            done, total, note = line(step, now - started)
            bars.update(bar, total=total, completed=done, note=note)
            if not notices.is_terminal and now - last_line >= _LINE_SECONDS:
                say(note)
                last_line = now
            yield step
    if started != last_line or notices.is_terminal:
        say(f"{noun} done in {duration(time.monotonic() - started)}")
