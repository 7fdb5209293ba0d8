"""Size of the repository: statements by room, docstrings, tests, and the page's own languages.

python benchmarks/lines.py

A room is a package of `tread_lab`, `analysis` or `dashboards`. Statements are counted in the syntax
tree, docstrings apart, so that joining lines or shortening names changes nothing.
"""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

ROOT = Path(__file__).parents[1]
PRODUCT = ("tread_lab", "analysis", "dashboards")  # the last two are linked into the first
PAGE = (".css", ".html", ".jinja", ".js")
DOCUMENTED = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)


def docstrings(tree: ast.AST) -> list[ast.expr]:
    """Return the docstrings of a module and of all that it defines."""
    return [
        node.body[0].value
        for node in ast.walk(tree)
        if isinstance(node, DOCUMENTED) and ast.get_docstring(node, clean=False) is not None
        if isinstance(node.body[0], ast.Expr)
    ]


def statements(tree: ast.AST) -> int:
    """Return the number of statements without docstrings."""
    return sum(isinstance(node, ast.stmt) for node in ast.walk(tree)) - len(docstrings(tree))


def files(top: str, endings: Iterable[str]) -> list[Path]:
    """Return the files of a folder, each once: no link to a folder is followed."""
    found = (path for path in (ROOT / top).rglob("*") if path.suffix in endings)
    return sorted(path for path in found if path.resolve() == path)


def room(path: Path) -> str:
    """Return the name of the package that a module counts for."""
    parts = path.relative_to(ROOT).parts
    return "/".join(parts[:2]) if parts[0] == PRODUCT[0] and len(parts) > 2 else parts[0]


def lines(paths: Iterable[Path]) -> int:
    """Return the number of lines of several files together."""
    return sum(len(path.read_text().splitlines()) for path in paths)


def main() -> None:
    """Print the table."""
    modules = [path for top in PRODUCT for path in files(top, [".py"])]
    rooms, documented = Counter[str](), 0
    for path in modules:
        tree = ast.parse(path.read_text())
        rooms[room(path)] += statements(tree)
        documented += sum((d.end_lineno or d.lineno) - d.lineno + 1 for d in docstrings(tree))
    for name, count in sorted(rooms.items()):
        print(f"{name:32} {count:6,}")
    print(f"{'statements in all':32} {rooms.total():6,}")
    print(f"{'docstrings, share of lines':32} {documented / lines(modules):6.0%}")
    for ending in PAGE:
        print(
            f"{f'*{ending}, lines':32} {lines(p for t in PRODUCT for p in files(t, [ending])):6,}"
        )
    print(f"{'tests, lines':32} {lines(files('tests', ['.py'])):6,}")


if __name__ == "__main__":
    main()
