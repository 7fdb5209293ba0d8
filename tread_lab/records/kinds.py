"""Whether values that were read from a record are of the kinds that its readers take."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

Kind = type | tuple[type, ...]
NUMBER = (int, float)
TEXT_OR_NONE = (str, type(None))


def fits(tree: Any, kinds: Mapping[str, Kind], *, partly: bool = False) -> bool:
    """Return whether it is a mapping with a value of its kind for each of these keys.

    Args:
        partly: keys may be absent.
    """
    if not isinstance(tree, dict) or not (partly or kinds.keys() <= tree.keys()):
        return False
    return all(isinstance(tree[key], kind) for key, kind in kinds.items() if key in tree)


def fits_all(tree: Any, kind: Kind) -> bool:
    """Return whether it is a mapping whose values are all of a kind."""
    return isinstance(tree, dict) and all(isinstance(value, kind) for value in tree.values())
