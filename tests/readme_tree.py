"""The generated part of docs, the floors of the house; run it to renew them."""

from __future__ import annotations

import ast
import tomllib
from collections.abc import Iterable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"


def caption(path: Path) -> str:
    """Return the first paragraph of a module's docstring, which is one sentence."""
    text = ast.get_docstring(ast.parse(path.read_text())) or ""
    return " ".join(text.split("\n\n")[0].split()).removesuffix(".")


def floors() -> str:
    """Return the layers of the import contract as a table, the highest floor first."""
    layers = _contracts("layers")[0]["layers"]
    rows = ((len(layers) - k, layer.split(" | ")) for k, layer in enumerate(layers))
    named = ((floor, " ".join(f"`{_short(name)}`" for name in names)) for floor, names in rows)
    return _table(("floor", "packages"), named)


GENERATED = {  # page -> the marker of each part
    "architecture.md": {"floors": floors},
}


def written(file: str) -> str:
    """Return a page with its generated parts as the code has them now."""
    page = (DOCS / file).read_text()
    for name, part in GENERATED[file].items():
        begin, end = f"<!-- {name} -->\n", f"<!-- /{name} -->"
        head, rest = page.split(begin)
        page = head + begin + part() + end + rest.split(end)[1]
    return page


def _contracts(kind: str) -> list[dict[str, Any]]:
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())
    contracts = settings["tool"]["importlinter"]["contracts"]
    return [contract for contract in contracts if contract["type"] == kind]


def _short(name: str) -> str:
    return name.removeprefix("tread_lab.")


def _table(heads: tuple[str, ...], rows: Iterable[tuple[object, ...]]) -> str:
    lines = [heads, ("---",) * len(heads), *rows]
    return "".join(f"| {' | '.join(map(str, line))} |\n" for line in lines)


if __name__ == "__main__":
    for name in GENERATED:
        (DOCS / name).write_text(written(name))
