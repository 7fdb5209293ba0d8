"""Confidence intervals: every 95% interval over seeds or images that is shown is computed here."""

# S seeds

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import stdtrit

Array = NDArray[np.float64]
CONFIDENCE = 0.95


def t_interval(values: Array) -> tuple[float, float, float]:
    """Return the mean of two or more values and the ends of its t-interval."""
    mean = float(values.mean())
    half = float(half_width(values.std(ddof=1), len(values)))
    return mean, mean - half, mean + half


def half_width(deviation: ArrayLike, n: ArrayLike) -> Array:
    """Return half the width of the t-interval of a mean: t(n - 1) deviation / sqrt(n).

    Args:
        deviation: standard deviations with the divisor n - 1; NaN, and so is the result, where n is
            less than 2.
        n: how many values each deviation was taken over.
    """
    n = np.maximum(n, 2)
    return np.asarray(stdtrit(n - 1, (1 + CONFIDENCE) / 2) * deviation / np.sqrt(n))


def pairing_kept(trial_S: Array, baseline_S: Array) -> float:
    """Return the variance of the paired difference over that of an unpaired one.

    That is 1 - rho at equal variances, where rho is the correlation of the two; 0.1 means that
    pairing shrank the variance ten times. S may stand for images instead of seeds.

    Args:
        trial_S: values of a run.
        baseline_S: values of its baseline for the same seeds or images.
    """
    apart = trial_S.var(ddof=1) + baseline_S.var(ddof=1)
    return float((trial_S - baseline_S).var(ddof=1) / apart) if apart > 0 else 0.0
