"""The report command: write one self-contained HTML file about a sweep."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from tread_lab.analysis.report.report import write_report
from tread_lab.commands.exit_codes import DONE
from tread_lab.records.lab import Lab


@dataclass(frozen=True)
class Options:
    """The options of `tread-lab report`; without `output` it is `report.html` beside the plan."""

    root: str | None
    name: str
    output: Path | None


def run(options: Options) -> int:
    """Write the report and print its path; return the exit code."""
    print(write_report(Lab.existing(options.root), options.name, options.output))
    return DONE
