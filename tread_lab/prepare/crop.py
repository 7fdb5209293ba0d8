"""ADM's centre crop: halve by boxes, resize bicubically, cut out the middle."""

from __future__ import annotations

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
