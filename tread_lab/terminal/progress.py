"""Progress of one long piece of work: a bar on a terminal, a line now and then in a log."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

from rich.progress import BarColumn, Progress, TextColumn

from tread_lab.specs.units import duration
from tread_lab.terminal.console import notices, say

Step = TypeVar("Step", bound=tuple[int, ...])  # what is done, all there is, and what is damaged
_LINE_SECONDS = 20.0  # between two lines of progress in a log
_MIN_SECONDS = 2.0  # no time left is shown before


def number(count: float) -> str:
    """Return `1,234` or `6.67`."""
    return f"{count:,.0f}" if count >= 100 else f"{count:.3g}"


def shown(
    steps: Iterable[Step], noun: str, text: Callable[[float], str] = number
) -> Iterator[Step]:
    """Yield the steps of the work, and show how far it is.

    Args:
        noun: what is done, or what becomes of it.
        text: so much of it in words.
    """
    started = last_line = time.monotonic()
    with Progress(
        BarColumn(),
        TextColumn("{task.description}"),
        console=notices,
        transient=True,
        disable=not notices.is_terminal,
    ) as bars:
        bar, done = bars.add_task(noun, total=None), 0
        for step in steps:
            now, (done, total, *_) = time.monotonic(), step
            line = progress_line(step, noun, now - started, text)
            bars.update(bar, total=total, completed=done, description=line)
            if not notices.is_terminal and now - last_line >= _LINE_SECONDS:
                say(line)
                last_line = now
            yield step
    if started != last_line or notices.is_terminal:
        say(f"{text(done)} {noun} in {duration(time.monotonic() - started)}")


def progress_line(
    step: tuple[int, ...], noun: str, seconds: float, text: Callable[[float], str] = number
) -> str:
    """Return `1,234/5,678 images, 312/s, 14 s left, 1 damaged` or `3 GB/14 GB packed, ...`."""
    done, total, *damaged = step
    line = f"{text(done)}/{text(total)} {noun}"
    if done and seconds >= _MIN_SECONDS:
        rate = done / seconds
        line += f", {text(rate)}/s, {duration((total - done) / rate)} left"
    return line + (f", {damaged[0]} damaged" if any(damaged) else "")
