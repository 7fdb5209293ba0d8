"""The rule that holds samples out."""

from __future__ import annotations

import numpy as np
import pytest

from tread_lab.data.split import MOST_HELDOUT, split_ids


@pytest.mark.parametrize("n", [2, 19, 20, 21, 1000, 1_281_167])
def test_the_two_splits_share_nothing_and_miss_nothing(n: int) -> None:
    train, heldout = split_ids(n, "train"), split_ids(n, "heldout")
    assert np.array_equal(np.sort(np.concatenate([train, heldout])), np.arange(n))
    assert len(heldout) == max(1, min(n // 20, MOST_HELDOUT))


@pytest.mark.parametrize(
    ("n", "heldout"), [(2, [1]), (19, [9]), (40, [10, 30]), (61, [10, 30, 50]), (1, [0])]
)
def test_these_places_are_held_out(n: int, heldout: list[int]) -> None:
    assert split_ids(n, "heldout").tolist() == heldout
    assert split_ids(n, "train").tolist() == [k for k in range(n) if k not in heldout]
    assert split_ids(n, "all").tolist() == list(range(n))
