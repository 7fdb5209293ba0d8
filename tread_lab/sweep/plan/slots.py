"""Runs on lanes: each starts, in order, on the lane that is free first."""

from __future__ import annotations

import heapq
from collections.abc import Sequence


def starts(seconds: Sequence[float], lanes: int) -> list[float]:
    """When each of these runs starts, in seconds."""
    free, found = [0.0] * max(lanes, 1), []
    for length in seconds:
        begin = heapq.heappop(free)
        found.append(begin)
        heapq.heappush(free, begin + length)
    return found


def makespan(seconds: Sequence[float], lanes: int) -> float:
    """When the last of them ends."""
    begins = starts(seconds, lanes)
    return max((begin + length for begin, length in zip(begins, seconds)), default=0.0)
