"""`then` in a run's plain tree: a run that goes on from the run before it, some fields changed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tread_lab.specs.decode import decode, encode
from tread_lab.specs.errors import UserError
from tread_lab.specs.run import RunSpec
from tread_lab.specs.set_fields import with_fields


def run_of(tree: Mapping[str, Any], path: str = "") -> RunSpec:
    """The run of a tree; with `then: {fields}` the run that goes on from it, fields changed.

    `{..., then: {routes: [], train: {steps: 100}}}` is 100 dense steps that start from the weights
    of the run without `then`, which becomes its parent (`init_from`).
    """
    tree = dict(tree)
    then = tree.pop("then", None)
    if then is None:
        return decode(RunSpec, tree, path)
    if not isinstance(then, Mapping):
        raise UserError(f"then: expected fields of the run that goes on, got {then!r}").at(path)
    child = with_fields({**tree, "init_from": None}, then, "then")
    start = {**(child["init_from"] or {}), "run": encode(run_of(tree, path))}
    return run_of({**child, "init_from": start}, path)
