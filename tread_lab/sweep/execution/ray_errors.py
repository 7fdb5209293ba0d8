"""Exceptions in the driver's own code, which Ray Tune would swallow or bury in one of its own."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager


class CallbackErrors:
    """Keeps the first exception of the callbacks that Ray Tune calls, to be raised after it.

    Attributes:
        first: what has gone wrong; the trials are to end then.
    """

    first: Exception | None = None

    @contextmanager
    def collect(self) -> Iterator[None]:
        """Keep what the block raises."""
        try:
            yield
        except Exception as error:
            self.first = self.first or error

    def raise_first(self) -> None:
        """Raise what was kept."""
        if self.first is not None:
            raise self.first
