"""Claims about mistakes: what is no positive number."""

from __future__ import annotations

import math

import pytest

from tread_lab.specs import UserError
from tread_lab.specs.objective import EDMSpec


@pytest.mark.parametrize("value", [0.0, -1.0, math.nan])
def test_what_is_not_above_zero_is_refused(value: float) -> None:
    with pytest.raises(UserError, match=f"^p_std: must be positive, got {value}$"):
        EDMSpec(p_std=value)
