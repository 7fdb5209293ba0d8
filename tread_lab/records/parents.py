"""Parents by name: `init_from: {run: 3f2a}` becomes the whole spec that the run of a lab has."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tread_lab.records.lab import Lab
from tread_lab.specs.decode import encode


def with_parents(tree: Any, lab: Lab) -> Any:
    """Return the tree with the spec of every parent that it names by (a prefix of) its signature.

    Raises:
        UserError: the lab has no such run, or several.
    """
    if isinstance(tree, list | tuple):
        return type(tree)(with_parents(item, lab) for item in tree)
    if not isinstance(tree, Mapping):
        return tree
    written = {key: with_parents(value, lab) for key, value in tree.items()}
    start = written.get("init_from")
    if isinstance(start, str):
        start = {"run": start}
    if isinstance(start, dict) and isinstance(start.get("run"), str):
        written["init_from"] = {**start, "run": encode(lab.known_run(start["run"]).spec())}
    return written
