"""The data verify command: one line for each fault of a data set."""

from __future__ import annotations

import json
from pathlib import Path

from tread_lab.commands.exit_codes import DONE, UNFINISHED
from tread_lab.prepare.pack import source_of
from tread_lab.prepare.verify import faults
from tread_lab.screen.console import answer, say
from tread_lab.specs.units import counted


def run(*, path: Path, source: str | None, classes: int | None, as_json: bool) -> int:
    """Print every fault; return the exit code."""
    found = []
    for fault in faults(source or source_of(path), path, classes=classes):
        found.append(fault)
        if not as_json:
            answer(fault)
    if as_json:
        print(json.dumps({"path": str(path), "faults": found}, indent=1))
    else:
        say(f"{path}: {counted(len(found), 'fault')}" if found else f"{path}: no faults")
    return UNFINISHED if found else DONE
