"""The mark of tests that take half a minute and whose claim a shorter one makes, too."""

from __future__ import annotations

import os

import pytest

LONG = pytest.mark.skipif(
    "TREAD_LAB_LONG" not in os.environ, reason="half a minute; `make faults` or TREAD_LAB_LONG=1"
)
