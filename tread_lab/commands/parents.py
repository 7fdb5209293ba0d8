"""Parents that a sweep or experiment names are runs of the lab."""

from __future__ import annotations

from typing import Any

from tread_lab.records.lab import Lab
from tread_lab.records.parents import with_parents
from tread_lab.specs.decode import decode


def written_out(part: Any, lab: Lab) -> Any:
    """A sweep or experiment with the runs written out that it names as parents."""
    return decode(type(part), with_parents(vars(part), lab))
