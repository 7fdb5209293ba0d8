"""The Inception-2015 weights that FID means: found and verified before anything unpickles them."""

from __future__ import annotations

import functools
import hashlib
import os
from pathlib import Path

from tread_lab.specs.errors import UserError

VARIABLE = "TREAD_LAB_INCEPTION"
FILE = "pt_inception-2015-12-05-6726825d.pth"  # as pytorch-fid and torch-fidelity publish it
SHA256 = "6726825d0af5f729cebd5821db510b11b1cfad8faad88a03f1befd49fb9129b2"


def inception_weights(given: Path | None = None) -> Path:
    """Return the weights at `given`, else at TREAD_LAB_INCEPTION.

    Raises:
        UserError: there are none, or the file is not the published one.
    """
    name = given or os.environ.get(VARIABLE)
    if not name:
        raise UserError(f"metrics: Inception features need {FILE}; give its path in {VARIABLE}")
    path = Path(name).expanduser()
    if not path.is_file():
        raise UserError(f"metrics: no Inception weights at {path}; {VARIABLE} must name {FILE}")
    if sha256(path) != SHA256:
        raise UserError(f"metrics: {path} is not the published {FILE}: its SHA-256 differs")
    return path


def sha256(path: Path) -> str:
    """Return the SHA-256 of a file, in hexadecimal digits."""
    stat = path.stat()
    return _sha256(path, stat.st_size, stat.st_mtime_ns)


@functools.cache
def _sha256(path: Path, size: int, changed: int) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
