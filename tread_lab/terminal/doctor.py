"""What `tread-lab doctor` shows: nodes and required files in tables, what is wrong, what to do."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping, Sequence

from tread_lab.prepare.required_files import REQUIRED, STANDS_IN
from tread_lab.sweep.execution.health import CHECKS, WARNING, Finding
from tread_lab.terminal.console import answer, answers, fitted, say

_UNKNOWN = "not known"
_NAMED = 4  # nodes in one line; the table and --json have all


def show_nodes(cells: Mapping[str, Mapping[str, str]]) -> None:
    """Print a row for each node and a column for each check."""
    rows = [[node, *checks.values()] for node, checks in cells.items()]
    answers.print(fitted(("node", *CHECKS), rows, drop=[], width=answers.width))


def show_files(absent: Mapping[str, str | None]) -> None:
    """Print where each required file comes from and whether it is here."""
    heads = ("file", "here", "size", "SHA-256", "purpose", "named by", "from")
    rows = [
        [
            name,
            _here(absent[name]),
            file.size,
            file.sha256[:12] or _UNKNOWN,
            file.purpose,
            file.named_by,
            file.origin,
        ]
        for name, file in REQUIRED.items()
    ]
    answers.print(fitted(heads, rows, drop=["purpose", "from"], width=answers.width))
    for name, why in absent.items():
        if why not in (None, "", STANDS_IN, f"{REQUIRED[name].named_by} is not set"):
            answer(f"{name}: {why}")


def _here(why: str | None) -> str:
    return {None: "-", "": "yes", STANDS_IN: "stand-in"}.get(why, "no")


def show_findings(findings: Sequence[Finding]) -> None:
    """Print a line for each thing that is wrong, the worst first, with all nodes that share it."""
    nodes: dict[tuple[int, str], list[str]] = {}
    for one in sorted(findings, key=lambda one: -one.code):
        nodes.setdefault((one.code, one.text), []).append(one.node)
    for (code, text), where in nodes.items():
        kind = "warning" if code == WARNING else "wrong"
        more = f" and {len(where) - _NAMED} more" if len(where) > _NAMED else ""
        answer(f"{kind}: {', '.join(where[:_NAMED])}{more}: {text}")
    if not findings:
        say("all well")


def doctor_json(
    cells: Mapping[str, Mapping[str, str]],
    absent: Mapping[str, str | None],
    findings: Sequence[Finding],
    code: int,
) -> str:
    """Return all of it as JSON."""
    files = {
        name: {
            **{k: v for k, v in dataclasses.asdict(file).items() if k != "check"},
            "sha256": file.sha256 or None,
            "here": None if absent[name] is None else not absent[name],
            "why_not": absent[name] or None,
        }
        for name, file in REQUIRED.items()
    }
    found = [dataclasses.asdict(finding) for finding in findings]
    tree = {"nodes": cells, "files": files, "findings": found, "exit_code": code}
    return json.dumps(tree, indent=1)
