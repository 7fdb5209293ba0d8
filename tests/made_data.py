"""Latents that tests make for themselves."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from tread_lab.data.latents import write_captions


def normal(count: int = 40, seed: int = 0) -> np.ndarray:
    """Latents 4x8x8 of deviation 1, in half precision."""
    return np.random.default_rng(seed).normal(size=(count, 4, 8, 8)).astype(np.float16)


def write_arrays(folder: Path, latents: Any, *, heldout: Any = None, classes: int = 7) -> Path:
    """Packed latents, and those held out beside them, with labels of so many classes in turn."""
    folder.mkdir(parents=True, exist_ok=True)
    for part, array in (("", latents), ("heldout_", heldout)):
        if array is not None:
            np.save(folder / f"{part}latents.npy", array)
            np.save(folder / f"{part}labels.npy", np.arange(len(array)) % classes)
    return folder


def write_captioned(folder: Path, count: int) -> None:
    """Random latents 4x8x8 of deviation 1 with two captions, packed as `data encode` does."""
    write_arrays(folder, normal(count), classes=1)
    write_captions(
        folder / "captions.jsonl",
        [[f"{_word(k)} {_word(7 * k + c)}" for c in range(2)] for k in range(count)],
    )


def _word(number: int) -> str:
    """Three letters that differ for the first 17,576 numbers."""
    return "".join(chr(ord("a") + number // 26**place % 26) for place in range(3))
