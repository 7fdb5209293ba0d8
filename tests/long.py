"""The mark of tests that take half a minute to half an hour: `make faults` runs them."""

from __future__ import annotations

import os

import pytest

LONG = pytest.mark.skipif(
    "TREAD_LAB_LONG" not in os.environ, reason="long; `make faults` or TREAD_LAB_LONG=1"
)
