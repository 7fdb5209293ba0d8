"""A package as an installer leaves it: its metadata and its entry points."""

from __future__ import annotations

from pathlib import Path


def write_metadata(site: Path, entry_points: str, *, name: str, version: str) -> Path:
    """Write the dist-info folder of a package into `site`, in place of one of its name."""
    info = site / f"{name.replace('-', '_')}.dist-info"
    info.mkdir(exist_ok=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
    (info / "entry_points.txt").write_text(entry_points)
    return info
