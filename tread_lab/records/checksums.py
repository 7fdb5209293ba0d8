"""Files that carry a checksum of what they say: whatever was cut off or changed is noticed."""

from __future__ import annotations

import json
import zlib
from typing import Any

_JSON_END, _YAML_START = ',\n "crc": "', "# crc "


class Damaged(ValueError):
    """The text is not what was written."""


def json_text(tree: Any) -> str:
    """Indented JSON; a mapping carries the checksum of all that stands before it."""
    text = json.dumps(tree, indent=1)
    if isinstance(tree, dict) and tree:
        head = text.removesuffix("\n}")
        text = f'{head}{_JSON_END}{checksum(head)}"\n}}'
    return text + "\n"


def json_tree(text: str) -> Any:
    """What `json_text` was given; a file without a checksum counts as it is.

    Raises:
        Damaged: it is not what was written.
    """
    head, mark, tail = text.rpartition(_JSON_END)
    if mark and tail != f'{checksum(head)}"\n}}\n':
        raise Damaged("its checksum differs")
    try:
        tree = json.loads(text)
    except ValueError as error:
        raise Damaged(str(error)) from None
    if mark:
        del tree["crc"]
    return tree


def yaml_text(body: str) -> str:
    """A YAML document below a comment with its checksum."""
    return f"{_YAML_START}{checksum(body)}\n{body}"


def yaml_body(text: str) -> str:
    """The document; one without a checksum counts as it is.

    Raises:
        Damaged: it is not what was written.
    """
    if not text.startswith(_YAML_START):
        return text
    first, _, body = text.partition("\n")
    if first != _YAML_START + checksum(body):
        raise Damaged("its checksum differs")
    return body


def checksum(text: str) -> str:
    """Eight hexadecimal digits."""
    return f"{zlib.crc32(text.encode()):08x}"
