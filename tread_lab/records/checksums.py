"""What tells a whole record: checksums in files and of files, and the kinds of its values."""

from __future__ import annotations

import hashlib
import json
import zlib
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

Kind = type | tuple[type, ...]
NUMBER = (int, float)
TEXT_OR_NONE = (str, type(None))
Tree = dict[str, Any]
FileChecksum = dict[str, int]  # `bytes` and `crc` of a finished file
_CHECKSUM: Mapping[str, Kind] = {"bytes": int, "crc": int}

_CHUNK = 1 << 20
_READ_AGAIN = 16 * _CHUNK  # bytes; of larger files only the size is looked at later
_JSON_END, _YAML_START = ',\n "crc": "', "# crc "


def json_text(tree: Any) -> str:
    """Indented JSON; a mapping carries the checksum of all that stands before it."""
    text = json.dumps(tree, indent=1)
    return sealed(text) if isinstance(tree, dict) and tree else text + "\n"


def sealed(text: str) -> str:
    """The JSON of a mapping, a key a line, with the checksum of all that stands before it."""
    return "".join(sealed_parts([text.rstrip().removesuffix("\n}")]))


def sealed_parts(parts: Iterable[str]) -> Iterator[str]:
    """The same in parts, for a text that is too large for copies; they end before its last line."""
    crc = 0
    for part in parts:
        crc = zlib.crc32(part.encode(), crc)
        yield part
    yield f'{_JSON_END}{crc:08x}"\n}}\n'


def json_tree(text: str | bytes) -> Any:
    """What `json_text` was given; a file without a checksum counts as it is.

    Raises:
        ValueError: it is not what was written.
    """
    content = text.encode() if isinstance(text, str) else text
    mark = content.rfind(_JSON_END.encode())
    if mark >= 0:
        crc = zlib.crc32(memoryview(content)[:mark])
        if content[mark:] != f'{_JSON_END}{crc:08x}"\n}}\n'.encode():
            raise ValueError("its checksum differs")
    try:
        tree = json.loads(content)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
    if mark >= 0:
        del tree["crc"]
    return tree


def are_checksums(tree: Any) -> bool:
    """Return whether it is what `file_checksums` returns."""
    return fits_all(tree, dict) and all(fits(x, _CHECKSUM) for x in tree.values())


def yaml_text(body: str) -> str:
    """A YAML document below a comment with its checksum."""
    return f"{_YAML_START}{checksum(body)}\n{body}"


def yaml_body(text: str) -> str:
    """The document; one without a checksum counts as it is.

    Raises:
        ValueError: it is not what was written.
    """
    if not text.startswith(_YAML_START):
        return text
    first, _, body = text.partition("\n")
    if first != _YAML_START + checksum(body):
        raise ValueError("its checksum differs")
    return body


def checksum(text: str) -> str:
    """Eight hexadecimal digits."""
    return f"{zlib.crc32(text.encode()):08x}"


def digest(content: str | bytes) -> str:
    """Sixteen hexadecimal digits of the SHA-256."""
    data = content.encode() if isinstance(content, str) else content
    return hashlib.sha256(data).hexdigest()[:16]


def file_checksums(paths: Iterable[Path]) -> dict[str, FileChecksum]:
    """Return size and checksum, by name, of each of these files that exists."""
    sizes = {path: path.stat().st_size for path in sorted(paths) if path.is_file()}
    return {
        path.name: {"bytes": size, "crc": _crc(path, size) if size <= _READ_AGAIN else 0}
        for path, size in sizes.items()
    }


def changed_files(folder: Path, stored: Mapping[str, FileChecksum]) -> list[str]:
    """Return the files of `folder` that were cut or changed since their checksums were stored.

    What was appended since is no damage, and a file that is absent was removed to save room.
    """
    return [name for name, checksum in stored.items() if _differs(folder / name, checksum)]


def _differs(path: Path, stored: FileChecksum) -> bool:
    size = stored["bytes"]
    try:
        if path.stat().st_size < size:
            return True
        return size <= _READ_AGAIN and _crc(path, size) != stored["crc"]
    except FileNotFoundError:
        return False


def _crc(path: Path, size: int) -> int:
    """Return the CRC of the first `size` bytes."""
    crc = 0
    with path.open("rb") as file:
        while size > 0 and (part := file.read(min(size, _CHUNK))):
            crc, size = zlib.crc32(part, crc), size - len(part)
    return crc


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
