"""Progress of one long piece of work: a bar on a terminal, a line now and then in a log."""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Iterable, Iterator
from typing import TypeVar

from rich.progress import BarColumn, Progress, TextColumn

from tread_lab.specs.units import duration
from tread_lab.terminal.console import notices, say

Step = TypeVar("Step", bound=tuple[int, ...])  # what is done, all there is, and what is damaged
T = TypeVar("T")
_LINE_SECONDS = 20.0  # between two lines of progress in a log
_MIN_SECONDS = 2.0  # no time left is shown before


def number(count: float) -> str:
    """Return `1,234` or `6.67`."""
    return f"{count:,.0f}" if count >= 100 else f"{count:.3g}"


def shown(
    steps: Iterable[Step],
    noun: str,
    text: Callable[[float], str] = number,
    *,
    summary: bool = True,
) -> Iterator[Step]:
    """Yield the steps of the work, and show how far it is.

    Args:
        noun: what is done, or what becomes of it.
        text: so much of it in words.
        summary: whether a last line says how much was done, and in what time.
    """
    started = last_line = time.monotonic()
    earlier: int | None = None
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
            earlier = done if earlier is None else earlier
            line = progress_line(step, noun, now - started, text, earlier=earlier)
            bars.update(bar, total=total, completed=done, description=line)
            if not notices.is_terminal and now - last_line >= _LINE_SECONDS:
                say(line)
                last_line = now
            yield step
    if summary and (started != last_line or notices.is_terminal):
        say(f"{text(done)} {noun} in {duration(time.monotonic() - started)}")


def with_progress(
    steps: Generator[tuple[int, int], None, T],
    noun: str,
    text: Callable[[float], str] = number,
    *,
    summary: bool = False,
) -> T:
    """Show how far the work is until its end, as `shown` does; return what it returns."""
    found: list[T] = []

    def kept() -> Iterator[tuple[int, int]]:
        found.append((yield from steps))

    for _ in shown(kept(), noun, text, summary=summary):
        pass
    return found[0]


def progress_line(
    step: tuple[int, ...],
    noun: str,
    seconds: float,
    text: Callable[[float], str] = number,
    *,
    earlier: int = 0,
) -> str:
    """Return `1,234/5,678 images, 312/s, 14 s left, 1 damaged` or `3 GB/14 GB packed, ...`.

    Args:
        earlier: how much was done before these seconds.
    """
    done, total, *damaged = step
    line = f"{text(done)}/{text(total)} {noun}"
    if done > earlier and seconds >= _MIN_SECONDS:
        rate = (done - earlier) / seconds
        line += f", {text(rate)}/s, {duration((total - done) / rate)} left"
    return line + (f", {damaged[0]} damaged" if any(damaged) else "")
