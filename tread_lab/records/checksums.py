"""Short digests of texts."""

from __future__ import annotations

import hashlib


def digest(content: str | bytes) -> str:
    """Sixteen hexadecimal digits of the SHA-256."""
    data = content.encode() if isinstance(content, str) else content
    return hashlib.sha256(data).hexdigest()[:16]
