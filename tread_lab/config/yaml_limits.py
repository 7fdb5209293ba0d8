"""YAML within limits: what is broken, endless or out of all proportion is refused in one line."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from tread_lab.specs.errors import UserError

MOST_BYTES = 2_000_000
MOST_NODES = 200_000  # values, those that aliases repeat counted again
DEEPEST = 40  # values inside one another
LARGEST = 2**53
LONGEST = 4_000  # characters of one text


def checked_text(path: Path) -> str:
    """Return the text of a YAML file that is safe to load.

    Raises:
        UserError: it cannot be read, is not YAML, or unfolds beyond the limits; says which line.
    """
    try:
        raw = path.read_bytes()
    except OSError as error:
        raise UserError(f"cannot read {path}: {error.strerror}") from None
    if len(raw) > MOST_BYTES:
        raise UserError(f"{path}: {len(raw):,} bytes are too many for a file of settings")
    try:
        text = raw.decode("utf-8-sig")
        root = yaml.compose(text, Loader=yaml.SafeLoader)
        nodes = _unfolded(root, {}, 0) if root is not None else 0
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise not_yaml(path, error) from None
    except (RecursionError, _TooDeep):
        raise UserError(f"{path}: nested more than {DEEPEST} deep, or in itself") from None
    if nodes > MOST_NODES:
        raise UserError(f"{path}: {nodes:,} values with its aliases, over {MOST_NODES:,}")
    return text


def not_yaml(path: Path, error: Exception) -> UserError:
    """Return the error of a mistake in the syntax, with its line."""
    mark = getattr(error, "problem_mark", None)
    place = f" line {mark.line + 1}" if mark is not None else ""
    problem = getattr(error, "problem", None) or str(error).strip().partition("\n")[0]
    return UserError(f"{path}{place}: not valid YAML: {problem or type(error).__name__}")


def check_values(value: Any, path: str) -> None:
    """Refuse numbers and texts that no field can hold."""
    if isinstance(value, Mapping):
        for key, item in value.items():
            check_values(item, f"{path}.{key}")
    elif isinstance(value, list):
        for k, item in enumerate(value):
            check_values(item, f"{path}[{k}]")
    elif isinstance(value, int) and abs(value) > LARGEST:
        raise UserError(f"{path}: a whole number of {value.bit_length()} bits is too large")
    elif isinstance(value, str) and len(value) > LONGEST:
        raise UserError(f"{path}: a text of {len(value):,} characters is too long")


class _TooDeep(Exception):
    """Nested beyond the limit, or without end."""


def _unfolded(node: yaml.Node, sizes: dict[int, int], depth: int) -> int:
    """Return how many values a node stands for once all aliases are written out."""
    if depth > DEEPEST:
        raise _TooDeep
    if id(node) not in sizes:
        inner: list[yaml.Node] = []
        if isinstance(node, yaml.MappingNode):
            inner = [part for pair in node.value for part in pair]
        elif isinstance(node, yaml.SequenceNode):
            inner = node.value
        sizes[id(node)] = 1 + sum(_unfolded(part, sizes, depth + 1) for part in inner)
    return sizes[id(node)]
