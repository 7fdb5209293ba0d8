"""The commands about a lab: its state, weights, archives, files nobody needs, MLflow's view."""

from __future__ import annotations

from pathlib import Path

from tread_lab.commands.options import (
    DONE,
    Export,
    Gc,
    Import,
    Rm,
    Status,
    Stop,
    Sync,
)
from tread_lab.records.lab import Lab
from tread_lab.records.sweep_archive import export_sweep, import_sweep
from tread_lab.records.sweep_folder import SweepFolder
from tread_lab.specs.errors import UserError
from tread_lab.specs.units import amount
from tread_lab.terminal.archive import show_exported, show_imported
from tread_lab.terminal.console import answer, answers, show_lines, shown_problems
from tread_lab.terminal.progress import with_progress
from tread_lab.terminal.status import show_lab, show_run, show_sweep, watch_sweep
from tread_lab.tracking.trackers import check_installed


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


def stop(options: Stop) -> int:
    """Ask a sweep's driver to end with checkpoints; return the exit code."""
    sweep = Lab.existing(options.root).known_sweep(options.name)
    answer(sweep.request_stop(options.why))
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


def gc(options: Gc) -> int:
    """List what can be removed, and remove it with `--yes`; return the exit code."""
    from tread_lab.sweep.gc import SAMPLES, clear, find
    from tread_lab.terminal.gc import show_removable

    lab = Lab.existing(options.root)
    problems: list[UserError] = []
    removable = find(lab, samples=True, problems=problems)
    chosen = [item for item in removable if options.samples or item.what != SAMPLES]
    freed = clear(lab, chosen, problems) if options.yes else None
    kept = sum(item.bytes for item in removable) - sum(item.bytes for item in chosen)
    show_removable(chosen, freed, as_json=options.as_json, kept=kept)
    return shown_problems(problems)


def export(options: Export) -> int:
    """Export the EMA weights of a run, or all records of a sweep; return the exit code."""
    lab, name, out = Lab.existing(options.root), options.name, Path(options.out)
    if name in lab.sweeps():
        if options.step is not None:
            raise UserError(f"--step: of a run; {name} is a sweep, and all its weights are packed")
        packing = export_sweep(lab, name, out, weights=not options.without_weights)
        show_exported(with_progress(packing, "packed", amount, summary=True), out)
        return DONE
    if options.without_weights:
        raise UserError(f"--without-weights: of a sweep; {lab.root} has no sweep {name!r}")
    from tread_lab.engine.export import export as write_export

    for file, size in write_export(lab.known_run(name), out, step=options.step).items():
        answer(f"{out / file}: {amount(size)}")
    return DONE


def import_(options: Import) -> int:
    """Add the sweep of an archive to the lab; return the exit code."""
    lab = Lab.at(options.root)
    unpacking = import_sweep(lab, options.file, options.as_name)
    show_imported(with_progress(unpacking, "unpacked", amount, summary=True), lab)
    return DONE


def sync(options: Sync) -> int:
    """Bring the named sweeps, by default all, up to date in a tracker; return the exit code."""
    check_installed([options.tracker])
    from tread_lab.commands.mlflow_view import sync_now

    lab = Lab.existing(options.root)
    problems: list[UserError] = []
    named = [lab.known_sweep(name).name for name in options.names]
    sweeps = named or [*lab.of_sweeps(SweepFolder.plan, problems)]
    if not sweeps and not problems:
        raise UserError(f"no sweep in {lab.root}; `tread-lab sweep` makes one")
    for name in sweeps:
        answer(str(sync_now(lab, name, options.tracker)))
    return shown_problems(problems)
