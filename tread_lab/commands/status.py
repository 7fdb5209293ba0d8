"""The status command: the state of a lab's sweeps, of the runs of one sweep, or of one run."""

from __future__ import annotations

import re

from tread_lab.commands.exit_codes import DONE
from tread_lab.records.lab import Lab, RunFolder
from tread_lab.screen.status import show_lab, show_run, show_sweep, watch_sweep
from tread_lab.specs.errors import UserError, suggest


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
        show_run(_run_named(lab, name), as_json=as_json)
    return DONE


def _run_named(lab: Lab, name: str) -> RunFolder:
    """Return a run by its name; what cannot begin one is taken for the name of a sweep.

    Raises:
        UserError: there is no such run, or no such sweep.
    """
    if re.fullmatch("[0-9a-f]+", name):
        return lab.known_run(name)
    raise UserError(f"{lab.root} has no sweep {name!r}{suggest(name, lab.sweeps())}")
