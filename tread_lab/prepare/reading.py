"""Images read by threads some batches ahead of what works on them, and ADM's centre crop."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Executor, Future
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray
from PIL import Image


def centre_crop(image: Image.Image, size: int) -> NDArray[np.uint8]:
    """Return the middle of an image, uint8 [size, size, 3], as ADM and its successors crop it.

    While the shorter side is at least 2 `size`, the image is halved by averaging boxes of 2x2
    pixels (sides rounded down). It is then resized bicubically so that the shorter side is `size`,
    and the middle is cut out, half a pixel towards the origin where sides are odd (Dhariwal &
    Nichol 2021; the same in DiT, SiT, EDM2 and REPA).
    """
    image = image.convert("RGB")
    while min(image.size) >= 2 * size:
        halved = image.width // 2, image.height // 2
        image = image.resize(halved, resample=Image.Resampling.BOX)
    factor = size / min(image.size)
    sides = round(image.width * factor), round(image.height * factor)
    image = image.resize(sides, resample=Image.Resampling.BICUBIC)
    left, top = (image.width - size) // 2, (image.height - size) // 2
    return np.asarray(image)[top : top + size, left : left + size]


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
