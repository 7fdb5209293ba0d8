"""The status command: the state of a lab's sweeps, of the runs of one sweep, or of one run."""

from __future__ import annotations

from tread_lab.commands.exit_codes import DONE
from tread_lab.records.lab import Lab
from tread_lab.screen.status import show_lab, show_run, show_sweep, watch_sweep


def run(*, root: str | None, name: str | None, watch: bool, as_json: bool) -> int:
    """Show the lab, a sweep, or the run whose signature starts so; return the exit code."""
    lab = Lab.existing(root)
    if name is None:
        return show_lab(lab, as_json=as_json)
    if watch:
        watch_sweep(lab, lab.known_sweep(name).name)
    elif name in lab.sweeps():
        show_sweep(lab, name, as_json=as_json)
    else:
        show_run(lab.known_run(name), as_json=as_json)
    return DONE
