"""The commands about a lab: its state, removals, weights, MLflow's view."""

from __future__ import annotations

from pathlib import Path

from tread_lab.commands.options import (
    DONE,
    Export,
    Rm,
    Status,
    Sync,
)
from tread_lab.records.lab import Lab
from tread_lab.records.sweep_folder import SweepFolder
from tread_lab.specs.errors import UserError
from tread_lab.specs.units import amount, counts_text
from tread_lab.terminal.console import answer, answers, show_lines, shown_problems
from tread_lab.terminal.status import show_lab, show_run, show_sweep, watch_sweep


def status(options: Status) -> int:
    """Show the lab, a sweep, or the run whose signature starts so; return the exit code."""
    lab, name = Lab.existing(options.root), options.name
    if options.watch and (name is None or options.as_json):
        raise UserError("--watch: shows the table of one sweep; name it, without --json")
    if name is None:
        return show_lab(lab, as_json=options.as_json)
    if options.watch:
        watch_sweep(lab, lab.known_sweep(name).name)
    elif isinstance(folder := lab.known(name), SweepFolder):
        show_sweep(lab, folder.name, as_json=options.as_json)
    else:
        show_run(folder, as_json=options.as_json)
    return DONE


def rm(options: Rm) -> int:
    """Say what removing a sweep or a run would lose; remove it with `--yes`."""
    from tread_lab.sweep.removal import removal_of, remove

    lab = Lab.existing(options.root)
    name = lab.known(options.name).name
    if options.yes and name != options.name:  # a sweep of that name may have been removed just now
        raise UserError(f"--yes: a run is removed by its whole name, {name}")
    removal = removal_of(lab, name)
    show_lines(answers, removal.lines())
    if options.yes:
        remove(removal)
    answer("removed; MLflow keeps its view" if options.yes else "--yes removes this for good")
    return DONE


def export(options: Export) -> int:
    """Export the EMA weights of a run; return the exit code."""
    from tread_lab.evaluate.export import export as write_export

    lab, out = Lab.existing(options.root), Path(options.out)
    for file, size in write_export(lab.known_run(options.name), out, step=options.step).items():
        answer(f"{out / file}: {amount(size)}")
    return DONE


def sync(options: Sync) -> int:
    """Bring the named sweeps, by default all, up to date in MLflow; return the exit code."""
    from tread_lab.commands.mlflow_view import mlflow_tracker

    lab = Lab.existing(options.root)
    problems: list[UserError] = []
    named = [lab.known_sweep(name).name for name in options.names]
    sweeps = named or [*lab.of_sweeps(SweepFolder.plan, problems)]
    if not sweeps and not problems:
        raise UserError(f"no sweep in {lab.root}; `tread-lab sweep` makes one")
    for name in sweeps:
        done = counts_text(mlflow_tracker(lab).sync(name))
        answer(f"{name}: {done or 'no run has begun'}")
    return shown_problems(problems)
