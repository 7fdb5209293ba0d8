"""Parents that a sweep or experiment names by signature: their specs are written out."""

from __future__ import annotations

from typing import TypeVar

from tread_lab.records.lab import Lab
from tread_lab.records.parents import with_parents
from tread_lab.specs.decode import decode
from tread_lab.specs.sweep import Experiment, SweepSpec

T = TypeVar("T", SweepSpec, Experiment)


def written_out(part: T, lab: Lab) -> T:
    """Return a sweep or experiment whose parents are whole specs.

    Raises:
        UserError: the lab has no such run, or several.
    """
    return decode(type(part), with_parents(vars(part), lab))
