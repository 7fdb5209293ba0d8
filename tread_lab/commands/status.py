"""The status command: where the sweeps of a lab, the runs of one sweep, or one run stand."""

from __future__ import annotations

from dataclasses import dataclass

from tread_lab.commands.exit_codes import DONE
from tread_lab.records.lab import Lab
from tread_lab.screen.status import show_lab, show_run, show_sweep, watch_sweep


@dataclass(frozen=True)
class Options:
    """The options of `tread-lab status`; `name` is a sweep or the start of a run's signature."""

    root: str | None
    name: str | None
    watch: bool
    json: bool


def run(options: Options) -> int:
    """Show the lab, a sweep or a run; return the exit code."""
    lab = Lab.existing(options.root)
    if options.name is None:
        show_lab(lab, as_json=options.json)
    elif options.watch:
        watch_sweep(lab, lab.known_sweep(options.name).name)
    elif options.name in lab.sweeps():
        show_sweep(lab, options.name, as_json=options.json)
    else:
        show_run(lab.known_run(options.name), as_json=options.json)
    return DONE
