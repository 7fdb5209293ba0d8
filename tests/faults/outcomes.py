"""A plugin of pytest that keeps how each test of a fault ended, for the table."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

_outcomes: dict[str, str] = {}


def pytest_runtest_logreport(report: Any) -> None:
    """The worst of all cases of a test counts."""
    name = report.nodeid.rpartition("::")[2].partition("[")[0]
    if report.failed:
        _outcomes[name] = "failed"
    elif report.skipped:
        _outcomes.setdefault(name, f"skipped: {report.longrepr[2].removeprefix('Skipped: ')}")
    elif report.when == "call" and _outcomes.get(name) != "failed":
        _outcomes[name] = "passed"


def pytest_sessionfinish() -> None:
    """Write what was kept to the file that FAULT_OUTCOMES names."""
    Path(os.environ["FAULT_OUTCOMES"]).write_text(json.dumps(_outcomes, indent=1))
