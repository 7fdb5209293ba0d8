"""Images read by threads some batches ahead of what works on them."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Executor, Future
from typing import TypeVar

AHEAD = 2  # batches that are read while one is worked on

Batch = TypeVar("Batch", bound=Sequence[int])
Read = TypeVar("Read")


def read_ahead(
    readers: Executor, read: Callable[[int], Read], batches: Iterable[Batch]
) -> Iterator[tuple[Batch, list[Read]]]:
    """Yield each batch of places with what `read` returns of them, in order.

    A batch is taken from `batches` only when it is at most `AHEAD` batches from its turn.

    Raises:
        Exception: what `read` raised, at the turn of its batch.
    """
    waiting: deque[tuple[Batch, list[Future[Read]]]] = deque()
    for batch in batches:
        waiting.append((batch, [readers.submit(read, place) for place in batch]))
        if len(waiting) > AHEAD:
            yield _finished(*waiting.popleft())
    while waiting:
        yield _finished(*waiting.popleft())


def _finished(batch: Batch, reading: Sequence[Future[Read]]) -> tuple[Batch, list[Read]]:
    return batch, [future.result() for future in reading]
