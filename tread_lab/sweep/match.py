"""Steps at equal cost: how long a trial trains to spend what its baseline spends."""

from __future__ import annotations

from collections.abc import Callable

from tread_lab.config.run import RunSpec

Price = Callable[[RunSpec], float]  # what all training steps of a run cost
_ROUNDED = 8  # steps within which rounded phases may cost less for more steps


def matched_steps(price: Callable[[int], float], spent: float, steps: int) -> int:
    """Return the steps whose price is nearest to `spent`.

    Args:
        price: of a run of so many steps. It rises with them, but for what the rounding of a phase's
            ends takes back.
        steps: where the search starts, at least 1.
    """
    low = high = max(1, round(steps * spent / price(steps)))  # where all steps cost the same
    width = 1
    while low > 1 and price(low) > spent:
        low, width = max(1, low - width), 2 * width
    width = 1
    while price(high) < spent:
        high, width = high + width, 2 * width
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if price(middle) < spent else (low, middle)

    def nearest(around: int) -> int:
        counts = range(max(1, low - around), high + around + 1)
        return min(counts, key=lambda count: abs(price(count) - spent))

    found = nearest(1)
    half_a_step = price(found) / found / 2
    return found if abs(price(found) - spent) <= half_a_step else nearest(_ROUNDED)


def steps_off(price: Price, run: RunSpec, baseline: RunSpec) -> float:
    """Return by how many of its own steps a run spends more than its baseline; negative: less."""
    return (price(run) - price(baseline)) * run.train.steps / price(run)
