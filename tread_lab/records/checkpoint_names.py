"""The files of checkpoints by their names, which have the step and a checksum."""

from __future__ import annotations

import re
from pathlib import Path

_NAME = re.compile(r"step-(\d{8})-([0-9a-f]{16})\.safetensors")


def list_checkpoints(folder: Path) -> list[Path]:
    """Return the files of checkpoints, newest step first."""
    paths = [path for path in folder.glob("step-*.safetensors") if _NAME.fullmatch(path.name)]
    return sorted(paths, key=lambda path: path.name, reverse=True)


def step_of(path: Path) -> int:
    """Return the step in a checkpoint's name."""
    return int(path.name.split("-")[1])
