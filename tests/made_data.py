"""Latents with captions that tests make for themselves."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from tread_lab.data.captions import write_captions


def write_captioned(folder: Path, count: int) -> None:
    """Random latents 4x8x8 of deviation 1 with two captions, packed as `data encode` does."""
    rng = np.random.default_rng(0)
    folder.mkdir(parents=True, exist_ok=True)
    np.save(folder / "latents.npy", rng.normal(size=(count, 4, 8, 8)).astype(np.float16))
    np.save(folder / "labels.npy", np.zeros(count, np.int64))
    write_captions(
        folder / "captions.jsonl",
        [[f"{_word(k)} {_word(7 * k + c)}" for c in range(2)] for k in range(count)],
    )


def _word(number: int) -> str:
    """Three letters that differ for the first 17,576 numbers."""
    return "".join(chr(ord("a") + number // 26**place % 26) for place in range(3))
