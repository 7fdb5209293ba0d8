"""A parent that is named by its signature becomes its whole spec; all else stays as written."""

from __future__ import annotations

from collections.abc import Callable

from tread_lab.records.lab import Lab
from tread_lab.records.parents import with_parents
from tread_lab.specs import RunSpec, encode, signature


def test_a_parent_by_name_keeps_which_weights_are_taken(
    lab: Lab, tiny: Callable[..., RunSpec]
) -> None:
    spec = tiny()
    lab.run_of(spec).create(spec)
    start = {"run": signature(spec)[:6], "weights": "model"}
    written = with_parents({"variants": [{"init_from": start}]}, lab)
    assert written == {"variants": [{"init_from": {"run": encode(spec), "weights": "model"}}]}
