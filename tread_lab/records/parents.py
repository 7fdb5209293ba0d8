"""Parents by name: `init_from: {run: 3f2a}` becomes the whole spec that the run of a lab has."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tread_lab.records.lab import Lab
from tread_lab.specs.decode import encode


def with_parents(tree: Any, lab: Lab) -> Any:
    """The plain tree with every parent that is named by (the start of) its signature written out.

    Raises:
        UserError: the lab has no such run, or several.
    """
    if isinstance(tree, list | tuple):
        return type(tree)(with_parents(item, lab) for item in tree)
    if not isinstance(tree, Mapping):
        return tree
    found = {key: with_parents(value, lab) for key, value in tree.items()}
    start = found.get("init_from")
    if isinstance(start, str):
        start = {"run": start}
    if isinstance(start, dict) and isinstance(start.get("run"), str):
        found["init_from"] = {**start, "run": encode(lab.known_run(start["run"]).spec())}
    return found
