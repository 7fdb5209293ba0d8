"""Writes docs/faults.md from the tests that cause faults, which `make faults` runs before."""

from __future__ import annotations

import ast
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tread_lab.cli.options import EXIT_CODES

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "faults.md"
NAMES = {
    1: "driver killed",
    3: "Ctrl-C, SIGTERM",
    4: "trial worker killed",
    5: "trial raises",
    6: "loss not finite",
    7: "out of memory",
    8: "node removed, then added",
    10: "second driver on a sweep",
    13: "disk full",
    14: "MLflow down",
    17: "code, data or weights changed",
    18: "same trial in two sweeps",
    19: "hung trial",
    23: "job reaches its time limit",
}
CODES = "\n".join(f"| {code} | {meaning} |" for code, meaning in EXIT_CODES.items())
HEAD = f"""# Faults that a sweep survives

Every accepted trial reaches exactly one recorded result. For each fault a test with real processes,
signals, files and clusters compares a sweep with the same sweep undisturbed. `make faults` runs the
tests and writes this page; `TREAD_LAB_KILLS=200 pytest tests/faults/test_crash.py` kills a sweep at
random moments.

`--hang-timeout SECONDS` ends and restarts a run that makes no step for so long, with all stacks in
`stacks.txt` of its folder.

| exit code | meaning |
|---|---|
{CODES}

| fault | what survives | test |
|---|---|---|
"""


@dataclass(frozen=True)
class Fault:
    """One test that causes a fault."""

    number: int
    survived: str
    test: str
    path: Path

    def row(self) -> str:
        link = f"[`{self.test}`]({os.path.relpath(self.path, PAGE.parent)})"
        return f"| {NAMES[self.number]} | {self.survived} | {link} |\n"


def faults() -> list[Fault]:
    """All tests that carry the mark, by number and place."""
    found = [fault for path in sorted((ROOT / "tests").rglob("test_*.py")) for fault in _in(path)]
    return sorted(found, key=lambda fault: fault.number)


def _in(path: Path) -> Iterator[Fault]:
    for node in ast.parse(path.read_text()).body:
        for mark in node.decorator_list if isinstance(node, ast.FunctionDef) else ():
            if isinstance(mark, ast.Call) and ast.unparse(mark.func) == "pytest.mark.fault":
                facts: dict[str, Any] = {
                    str(k.arg): ast.literal_eval(k.value) for k in mark.keywords
                }
                number = ast.literal_eval(mark.args[0])
                yield Fault(number, test=node.name, path=path, **facts)


def page() -> str:
    """The page, a row for each test."""
    return HEAD + "".join(fault.row() for fault in faults())


if __name__ == "__main__":
    PAGE.write_text(page())
