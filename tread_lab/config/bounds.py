"""Bounds of numbers, declared in the type of a field: `Annotated[float, within("[0, 1)")]`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated

from tread_lab.config.errors import UserError


def within(interval: str) -> Callable[[float], None]:
    """Return a check that refuses numbers outside an interval such as `[0, 1)` or `(0, inf)`."""
    low, high = map(float, interval[1:-1].split(","))
    open_low, open_high = interval[0] == "(", interval[-1] == ")"
    required = f"in {interval}"
    if high == float("inf"):
        required = "positive" if (low, open_low) == (0, True) else f"at least {low:g}"

    def check(value: float) -> None:
        if (
            value < low
            or value > high
            or (value == low and open_low)
            or (value == high and open_high)
        ):
            raise UserError(f"must be {required}, got {value}")

    return check


Count = Annotated[int, within("[1, inf)")]
Natural = Annotated[int, within("[0, inf)")]
Positive = Annotated[float, within("(0, inf)")]
NotNegative = Annotated[float, within("[0, inf)")]
Share = Annotated[float, within("[0, 1]")]
Rate = Annotated[float, within("[0, 1)")]
