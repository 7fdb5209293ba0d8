"""The generated parts of docs: floors, doors and tree; run it to renew them."""

from __future__ import annotations

import ast
import tomllib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
PACKAGE = ROOT / "tread_lab"
_WIDTH = 28


def caption(path: Path) -> str:
    """Return the first paragraph of a module's docstring, which is one sentence."""
    text = ast.get_docstring(ast.parse(path.read_text())) or ""
    return " ".join(text.split("\n\n")[0].split()).removesuffix(".")


def tree() -> str:
    """Return one line for every package and module, with its caption."""
    lines = "".join(f"{line}\n" for line in _lines(PACKAGE, 0))
    return f"```\n{lines}```\n"


def floors() -> str:
    """Return the layers of the import contract as a table, the highest floor first."""
    layers = _contracts("layers")[0]["layers"]
    rows = ((len(layers) - k, layer.split(" | ")) for k, layer in enumerate(layers))
    named = ((floor, " ".join(f"`{_short(name)}`" for name in names)) for floor, names in rows)
    return _table(("floor", "packages"), named)


def doors() -> str:
    """Return the modules that may import each heavy package, as a table."""
    rows = (
        (
            " ".join(f"`{name}`" for name in contract["protected_modules"]),
            " ".join(f"`{_short(name)}`" for name in contract["allowed_importers"]),
        )
        for contract in _contracts("protected")
    )
    return _table(("package", "imported by"), rows)


GENERATED = {  # page -> the marker of each part
    "architecture.md": {"floors": floors, "doors": doors, "tree": tree},
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


def _lines(folder: Path, depth: int) -> Iterator[str]:
    yield _line(f"{folder.name}/", folder / "__init__.py", depth)
    modules = sorted(p for p in folder.glob("*.py") if p.name != "__init__.py")
    for module in modules:
        yield _line(module.name, module, depth + 1)
    for inner in sorted(p.parent for p in folder.glob("*/__init__.py")):
        yield from _lines(inner, depth + 1)


def _line(name: str, path: Path, depth: int) -> str:
    return f"{'  ' * depth + name:<{_WIDTH}} {caption(path)}"


if __name__ == "__main__":
    for name in GENERATED:
        (DOCS / name).write_text(written(name))
