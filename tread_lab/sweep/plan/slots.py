"""Schedules runs on slots: each run starts, in order, in the slot that is free first."""

from __future__ import annotations

import heapq
from collections.abc import Sequence


def starts(seconds: Sequence[float], slots: int) -> list[float]:
    """Return the second in which each run starts, from the seconds that each one takes."""
    free, begins = [0.0] * max(slots, 1), []
    for length in seconds:
        begin = heapq.heappop(free)
        begins.append(begin)
        heapq.heappush(free, begin + length)
    return begins


def makespan(seconds: Sequence[float], slots: int) -> float:
    """Return the second in which the last run ends."""
    begins = starts(seconds, slots)
    return max((begin + length for begin, length in zip(begins, seconds)), default=0.0)
