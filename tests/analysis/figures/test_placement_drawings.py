"""Maps and spans show the true differences, and what has none cannot be taken for a value."""

from __future__ import annotations

import numpy as np

from tread_lab.analysis.figures.style import (
    BETTER_TO_WORSE,
    LESS_TO_MORE,
    ink_on,
)


def test_letters_contrast_with_every_colour() -> None:
    for colours in (BETTER_TO_WORSE, LESS_TO_MORE):
        for share in np.linspace(0, 1, 41):
            red, green, blue = (
                v / 12.92 if v <= 0.04045 else ((v + 0.055) / 1.055) ** 2.4
                for v in colours(share)[:3]
            )
            light = 0.2126 * red + 0.7152 * green + 0.0722 * blue
            white = ink_on(colours(share)) == "white"
            assert (1.05 / (light + 0.05) if white else (light + 0.05) / 0.05) >= 4.5
