"""Reading ahead: batches in order, read by threads, and never more than two ahead."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from PIL import Image

from tread_lab.prepare.reading import centre_crop, read_ahead


def test_each_batch_comes_in_order_with_what_was_read_of_its_places() -> None:
    batches = [range(3), range(3, 4), range(4, 9), range(9, 10)]
    with ThreadPoolExecutor(3) as readers:
        read = list(read_ahead(readers, lambda place: place * place, batches))
    assert read == [
        (range(3), [0, 1, 4]),
        (range(3, 4), [9]),
        (range(4, 9), [16, 25, 36, 49, 64]),
        (range(9, 10), [81]),
    ]


def test_two_batches_are_read_while_one_is_worked_on_and_no_more() -> None:
    taken: list[int] = []

    def batches() -> Iterator[list[int]]:
        for place in range(6):
            taken.append(place)
            yield [place]

    started = [threading.Event() for _ in range(6)]
    with ThreadPoolExecutor(2) as readers:
        reading = read_ahead(readers, lambda place: started[place].set(), batches())
        next(reading)
        assert taken == [0, 1, 2]
        assert started[1].wait(20) and started[2].wait(20)
        assert not started[3].is_set()
        next(reading)
        assert taken == [0, 1, 2, 3]


def test_an_image_that_cannot_be_read_is_raised_at_its_turn() -> None:
    def read(place: int) -> int:
        return 1 // (place - 1)

    with ThreadPoolExecutor(2) as readers:
        reading = read_ahead(readers, read, [[2], [1], [3]])
        assert next(reading) == ([2], [1])
        with pytest.raises(ZeroDivisionError):
            next(reading)


def _cubic(x: np.ndarray) -> np.ndarray:
    """Keys' kernel with a = -1/2."""
    x = np.abs(x)
    near = 1.5 * x**3 - 2.5 * x**2 + 1
    far = -0.5 * x**3 + 2.5 * x**2 - 4 * x + 2
    return np.where(x < 1, near, np.where(x < 2, far, 0.0))


def _weights(old: int, new: int) -> np.ndarray:
    """[new, old]: the kernel, widened by the factor of shrinking, at the centres of pixels."""
    ratio = old / new
    centre = (np.arange(new)[:, None] + 0.5) * ratio
    weights = _cubic((np.arange(old)[None] + 0.5 - centre) / max(ratio, 1))
    return weights / weights.sum(axis=1, keepdims=True)


def _rounded(levels: np.ndarray) -> np.ndarray:
    return np.clip(np.floor(levels + 0.5), 0, 255)


def _reference(pixels: np.ndarray, size: int) -> np.ndarray:
    """Of even sides; rounded to levels after the rows and after the columns, as images are."""
    image = pixels.astype(np.float64)
    while min(image.shape[:2]) >= 2 * size:
        h, w = image.shape[0] // 2, image.shape[1] // 2
        image = _rounded(image.reshape(2 * h, w, 2, 3).mean(axis=2))
        image = _rounded(image.reshape(h, 2, w, 3).mean(axis=1))
    factor = size / min(image.shape[:2])
    h, w = (round(side * factor) for side in image.shape[:2])
    image = _rounded(np.einsum("xw,hwc->hxc", _weights(image.shape[1], w), image))
    image = _rounded(np.einsum("yh,hxc->yxc", _weights(image.shape[0], h), image))
    top, left = (h - size) // 2, (w - size) // 2
    return image[top : top + size, left : left + size]


@pytest.mark.parametrize(("size", "off"), [(16, 0), (24, 1), (30, 1), (64, 0), (80, 1)])
def test_the_crop_is_its_definition(pixels: np.ndarray, size: int, off: int) -> None:
    cropped = centre_crop(Image.fromarray(pixels), size)
    assert cropped.shape == (size, size, 3) and cropped.dtype == np.uint8
    assert np.abs(cropped - _reference(pixels, size)).max() <= off


def test_grey_and_transparent_images_become_rgb(pixels: np.ndarray) -> None:
    grey = Image.fromarray(pixels).convert("LA")
    assert centre_crop(grey, 32).shape == (32, 32, 3)
