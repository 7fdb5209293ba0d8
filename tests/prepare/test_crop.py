"""ADM's centre crop against its definition in float64: boxes, cubic weights, the middle."""

from __future__ import annotations

import numpy as np
import pytest
from PIL import Image

from tread_lab.prepare.crop import centre_crop


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
