"""Nested settings flattened to dotted names: `train.lr`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any


def dotted(tree: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Yield the leaves by dotted name: `{train: {lr: 1}}` gives (`train.lr`, 1).

    Lists stay whole; an empty mapping has no leaf.
    """
    for name, value in tree.items():
        if isinstance(value, Mapping):
            yield from dotted(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", value
