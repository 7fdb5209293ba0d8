"""Nested settings under dotted names."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any


def flat(tree: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """`{train: {lr: 1}}` -> (`train.lr`, 1); lists stay as they are."""
    for name, value in tree.items():
        if isinstance(value, Mapping):
            yield from flat(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", value
