"""The best rate follows the sign of the metric; no rate is best by what is no quality."""

from __future__ import annotations

import numpy as np
import pytest

from tread_lab.analysis.figures.curves import Curve, Curves
from tread_lab.analysis.figures.rates import best_rate, caption


def curves(metric: str) -> Curves:
    """One route at three rates: -1 at 0.25, +2 at 0.5."""
    rate, value, none = np.array([0, 0.25, 0.5]), np.array([0, -1.0, 2.0]), np.full(3, np.nan)
    states = ("completed",) * 3
    return Curves(metric, (Curve("2->8", False, rate, none, value, none, none, states),), "")


@pytest.mark.parametrize(("metric", "best"), [("delta/fid@10k", 1), ("delta/is@10k", 2)])
def test_less_or_more_is_better(metric: str, best: int) -> None:
    found = best_rate(curves(metric))
    assert found is not None and found[1] == best
    assert caption(curves(metric)).startswith(f"Best is s = {0.25 * best:g} on 2→8:")


def test_no_rate_is_best_by_what_is_no_quality() -> None:
    assert best_rate(curves("gap/train")) is None
