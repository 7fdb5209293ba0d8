"""What stands on a page of the documentation: fenced blocks, commands, pictures."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
PAGES = [ROOT / "README.md", *sorted(DOCS.glob("*.md"))]
FENCE = re.compile(r'^```(\w*)(?: title="([^"]+)")?\n(.*?)^```$', re.M | re.S)


@dataclass(frozen=True)
class Block:
    """A fenced block: its language (none for commands), the file it is, and its text."""

    language: str
    title: str
    text: str


def blocks(page: Path) -> list[Block]:
    return [Block(*found) for found in FENCE.findall(page.read_text(encoding="utf-8"))]


def commands(text: str) -> list[str]:
    """The lines of a block of commands, continued ones joined, remarks taken away."""
    joined = text.replace("\\\n", " ")
    lines = (re.sub(r"\s+# .*", "", line).strip() for line in joined.splitlines())
    return [line for line in lines if line and not line.startswith("#")]


def section(page: Path, title: str) -> list[Block]:
    """The blocks under one heading."""
    text = page.read_text(encoding="utf-8").split(f"## {title}\n")[1].split("\n## ")[0]
    return [Block(*found) for found in FENCE.findall(text)]
