"""Writes docs/faults.md from the tests of faults and how they ended: `make faults`.

`python tests/faults/table.py -k clock` runs the tests that pytest's `-k clock` selects and keeps
the outcomes of the others; `--no-run` keeps all of them.
"""

from __future__ import annotations

import ast
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tread_lab.commands.options import EXIT_CODES

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "faults.md"
NAMES = {
    1: "driver killed",
    2: "killed between the last step and the result",
    3: "Ctrl-C, SIGTERM",
    4: "trial worker killed",
    5: "a trial that always raises",
    6: "loss not finite",
    7: "out of memory",
    8: "node removed, later added again",
    9: "whole cluster lost",
    10: "two drivers on one sweep",
    11: "damaged record",
    12: "damaged checkpoint",
    13: "disk full",
    14: "MLflow down",
    15: "several starters on a fresh store",
    16: "sweep file edited after launch",
    17: "code, data or weights changed between attempts",
    18: "the same trial twice",
    19: "hung trial",
    20: "evaluation fails",
    21: "clock jumps",
    22: "packed trials that do not fit the device",
}
PASSED = "passed"
CODES = "\n".join(f"| {code} | {meaning} |" for code, meaning in EXIT_CODES.items())
HEAD = f"""# Faults that a sweep survives

Every accepted trial reaches exactly one recorded result. A test causes each fault for real: with
drivers and workers in processes of their own, real signals, files, servers and clusters. What is
left is compared with the same sweep undisturbed. `make faults` runs the tests and writes this page;
`python tests/faults/crash.py --kills 200` kills a sweep at random moments.

| exit code | meaning |
|---|---|
{CODES}

Tests that did not pass on the machine that wrote this page say so.

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

    def row(self, outcome: str) -> str:
        link = f"[`{self.test}`]({os.path.relpath(self.path, PAGE.parent)})"
        said = "" if outcome == PASSED else f" {outcome}"
        cells = (NAMES[self.number], self.survived, link + said)
        return f"| {' | '.join(cells)} |\n"


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


def page(outcomes: Mapping[str, str]) -> str:
    """The page, with `outcomes` by the tests' names."""
    rows = (fault.row(outcomes.get(fault.test, "not run")) for fault in faults())
    return HEAD + "".join(rows)


def known(text: str) -> dict[str, str]:
    """The outcomes that a page tells of."""
    rows = [line.strip("| \n").split(" | ") for line in text.splitlines() if line.startswith("| ")]
    tests = [row[2] for row in rows if len(row) == 3 and "](" in row[2]]
    return {t[2:].partition("`")[0]: t.partition(") ")[2] or PASSED for t in tests}


def _run(arguments: list[str]) -> dict[str, str]:
    """Run the tests; how each of them ended."""
    files = sorted({str(fault.path) for fault in faults()})
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "outcomes.json"
        environment = {**os.environ, "FAULT_OUTCOMES": str(path), "PYTHONPATH": str(ROOT)}
        environment["TREAD_LAB_LONG"] = "1"
        command = [sys.executable, "-m", "pytest", "-p", "tests.faults.outcomes", "-m", "fault"]
        command += [*files, *arguments]
        subprocess.run(command, cwd=ROOT, env=environment, check=False)
        found: dict[str, str] = json.loads(path.read_text())
    return found


def main(arguments: list[str]) -> int:
    """0 where every test passed or was skipped for a reason."""
    outcomes = known(PAGE.read_text()) if PAGE.exists() and arguments else {}
    if arguments != ["--no-run"]:
        outcomes |= _run(arguments)
    PAGE.write_text(page(outcomes))
    return int(any(outcome == "failed" for outcome in outcomes.values()))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
