"""The README's tree, made from the first sentence of each module; run it to bring it up to date."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
PACKAGES = ("tread_lab", "analysis", "dashboards")
BEGIN, END = "<!-- tree -->\n```\n", "```\n<!-- /tree -->"
_WIDTH = 28


def caption(path: Path) -> str:
    """The first paragraph of a module's docstring, one sentence."""
    text = ast.get_docstring(ast.parse(path.read_text())) or ""
    return " ".join(text.split("\n\n")[0].split()).removesuffix(".")


def tree() -> str:
    """One line for every package and module, with its caption."""
    return "".join(f"{line}\n" for package in PACKAGES for line in _lines(ROOT / package, 0))


def _lines(folder: Path, depth: int) -> Iterator[str]:
    yield _line(f"{folder.name}/", folder / "__init__.py", depth)
    modules = sorted(p for p in folder.glob("*.py") if p.name != "__init__.py")
    for module in modules:
        yield _line(module.name, module, depth + 1)
    for inner in sorted(
        p.parent for p in folder.glob("*/__init__.py") if not p.parent.is_symlink()
    ):
        yield from _lines(inner, depth + 1)


def _line(name: str, path: Path, depth: int) -> str:
    return f"{'  ' * depth + name:<{_WIDTH}} {caption(path)}"


def written(readme: str) -> str:
    """The README with the tree as it is now."""
    before, rest = readme.split(BEGIN)
    return before + BEGIN + tree() + END + rest.split(END)[1]


if __name__ == "__main__":
    path = ROOT / "README.md"
    path.write_text(written(path.read_text()))
