"""Short digests of texts."""

from __future__ import annotations

import hashlib
import zlib


def checksum(text: str) -> str:
    """Eight hexadecimal digits."""
    return f"{zlib.crc32(text.encode()):08x}"


def digest(content: str | bytes) -> str:
    """Sixteen hexadecimal digits of the SHA-256."""
    data = content.encode() if isinstance(content, str) else content
    return hashlib.sha256(data).hexdigest()[:16]
