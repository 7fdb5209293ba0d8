"""Which samples are held out where a data set brings no held-out part of its own."""

from __future__ import annotations

from typing import Literal

import numpy as np
from numpy.typing import NDArray

Split = Literal["train", "heldout", "all"]  # `all`: every sample that is no held-out array's
MOST_HELDOUT = 10_000


def split_ids(n: int, split: Split) -> NDArray[np.int64]:
    """The stored places of one split, ascending: 5% are held out, at most 10,000, at least 1.

    They are spread evenly over the whole set, since stored sets are often sorted by class and a
    tail would hold out whole classes. The rule knows `n` alone, so it is the same in every run.
    """
    if split == "all":
        return np.arange(n, dtype=np.int64)
    count = max(1, min(n // 20, MOST_HELDOUT))
    heldout = (np.arange(count) * n + n // 2) // count
    if split == "heldout":
        return heldout.astype(np.int64)
    return np.setdiff1d(np.arange(n), heldout, assume_unique=True)
