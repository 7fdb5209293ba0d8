"""The report command: write one self-contained HTML file about a sweep."""

from __future__ import annotations

from pathlib import Path

from tread_lab.analysis.report.report import write_report
from tread_lab.commands.exit_codes import DONE
from tread_lab.records.lab import Lab


def run(*, root: str | None, name: str, output: Path | None) -> int:
    """Write the report, by default beside the plan, and print its path; return the exit code."""
    print(write_report(Lab.existing(root), name, output))
    return DONE
