"""The signature of a spec: a hash of what decides the result, and the one list of what does not."""

from __future__ import annotations

import hashlib
import json
from typing import Any

from tread_lab.spec.decode import encode

# Dotted paths left out of every signature: they change where and how a run is executed, never what
# is learned. The device count belongs to the executor and is in no spec at all.
NOT_SCIENCE = ("execution", "data.path", "repa.path")


def signature(*specs: Any) -> str:
    """16 hexadecimal digits naming the given specs; equal specs, equal names, on any machine."""
    return _name([encode(spec) for spec in specs])


def _name(trees: list[Any]) -> str:
    trees = [_science(tree) for tree in trees]
    text = json.dumps(trees, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _science(tree: Any) -> Any:
    if not isinstance(tree, dict):
        return tree
    tree = dict(tree)
    for dotted in NOT_SCIENCE:
        *parents, leaf = dotted.split(".")
        node: Any = tree
        for parent in parents:
            if not isinstance(node.get(parent), dict):
                break
            node[parent] = dict(node[parent])
            node = node[parent]
        else:
            node.pop(leaf, None)
    if isinstance(start := tree.get("init_from"), dict):
        tree["init_from"] = {**start, "run": _name([start["run"]])}
    return tree
