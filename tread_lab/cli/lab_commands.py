"""The commands about a lab: its state, removals, MLflow's view."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

from tread_lab.cli.options import DONE, AsJson, Root
from tread_lab.config.errors import UserError
from tread_lab.records.lab import Lab

Named = "a sweep, or the start of a run's signature"


def status(
    name: Annotated[str | None, Named] = None,
    *,
    watch: Annotated[bool, "update the table until all runs have ended"] = False,
    as_json: AsJson = False,
    root: Root = None,
) -> int:
    """Show what is done, running, failed.

    Example: tread-lab status route_placement
    """
    from tread_lab.cli.show_status import show_lab, show_run, show_sweep, watch_sweep
    from tread_lab.records.sweep_folder import SweepFolder

    lab = Lab.existing(root)
    if watch and (name is None or as_json):
        raise UserError("--watch: shows the table of one sweep; name it, without --json")
    if name is None:
        show_lab(lab, as_json=as_json)
    elif watch:
        watch_sweep(lab, lab.known_sweep(name).name)
    elif isinstance(folder := lab.known(name), SweepFolder):
        show_sweep(lab, folder.name, as_json=as_json)
    else:
        show_run(folder, as_json=as_json)
    return DONE


def rm(
    name: Annotated[str, Named, {"metavar": "SWEEP|RUN"}],
    *,
    yes: Annotated[bool, "remove it"] = False,
    root: Root = None,
) -> int:
    """Remove a sweep or a run (dry run unless --yes).

    Example: tread-lab rm route_placement --yes
    """
    from tread_lab.sweep.removal import removal_of, remove

    lab = Lab.existing(root)
    whole = lab.known(name).name
    if yes and name != whole:  # a sweep of that name may have been removed just now
        raise UserError(f"--yes: a run is removed by its whole name, {whole}")
    removal = removal_of(lab, whole)
    print(*removal.lines(), sep="\n")
    if yes:
        remove(removal)
    print("removed; MLflow keeps its view" if yes else "--yes removes this for good")
    return DONE


def sync(
    names: Annotated[
        Sequence[str], "sweeps (default: all)", {"metavar": "SWEEP", "nargs": "*"}
    ] = (),
    *,
    root: Root = None,
) -> int:
    """Rebuild the MLflow store from the records.

    Example: tread-lab sync
    """
    from tread_lab.cli.mlflow_view import mlflow_tracker
    from tread_lab.config.units import counts_text

    lab = Lab.existing(root)
    sweeps = [lab.known_sweep(name).name for name in names] or lab.sweeps()
    if not sweeps:
        raise UserError(f"no sweep in {lab.root}; `tread-lab sweep` makes one")
    for name in sweeps:
        print(f"{name}: {counts_text(mlflow_tracker(lab).sync(name)) or 'no run has begun'}")
    return DONE
