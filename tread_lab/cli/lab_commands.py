"""The commands about what a lab holds: its state, removals, views and exports."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

from tread_lab.cli.options import DONE, AsJson, Host, OneSweep, Root
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
    from tread_lab.config.units import counts_text
    from tread_lab.tracking.mlflow_tracker import MlflowTracker

    lab = Lab.existing(root)
    sweeps = [lab.known_sweep(name).name for name in names] or lab.sweeps()
    if not sweeps:
        raise UserError(f"no sweep in {lab.root}; `tread-lab sweep` makes one")
    tracker = MlflowTracker(lab, lab.mlflow_uri)
    for name in sweeps:
        print(f"{name}: {counts_text(tracker.sync(name)) or 'no run has begun'}")
    return DONE


def figures(name: OneSweep, *, root: Root = None) -> int:
    """Draw the paper's figures, and print their paths.

    Example: tread-lab figures route_placement
    """
    from tread_lab.analysis.figures.catalogue import write_figures

    lab = Lab.existing(root)
    for path in write_figures(lab, lab.known_sweep(name).name):
        print(path)
    return DONE


def report(
    name: OneSweep,
    other: Annotated[str | None, "a second sweep, compared cell by cell"] = None,
    *,
    output: Annotated[Path | None, "the file (default: report.html beside the plan)"] = None,
    root: Root = None,
) -> int:
    """Write one HTML file about a sweep, or about two side by side.

    Example: tread-lab report route_placement
    """
    from tread_lab.dashboards.contents import page_file, versus_file
    from tread_lab.records.durable import write_text

    lab = Lab.existing(root)
    folder = lab.known_sweep(name)
    if other is None:
        path, text = folder.path / "report.html", page_file(lab, folder.name)
    else:
        path = folder.path / f"report-{other}.html"
        text = versus_file(lab, folder.name, other)
    path = output or path
    write_text(path, text)
    print(path)
    return DONE


def dashboard(
    *,
    host: Host = "127.0.0.1",
    port: Annotated[int, "port to listen on (8600)", {"type": int}] = 8600,
    root: Root = None,
) -> int:
    """Follow sweeps in the browser.

    Example: tread-lab dashboard --port 8601
    """
    from tread_lab.cli.console import say
    from tread_lab.dashboards.server import serve

    serve(Lab.at(root), host=host, port=port, say=say)
    return DONE


def ui(
    *,
    host: Host = "127.0.0.1",
    port: Annotated[int, "port to listen on (5000)", {"type": int}] = 5000,
    root: Root = None,
) -> int:
    """Open the MLflow pages of this lab.

    Example: tread-lab ui --port 5001
    """
    from tread_lab.tracking.mlflow_tracker import MlflowTracker
    from tread_lab.tracking.store import ui as serve_ui

    lab = Lab.existing(root)
    for name in lab.sweeps():
        MlflowTracker(lab, lab.mlflow_uri).sync(name)
    serve_ui(lab, host=host, port=port)
    return DONE


def export(
    name: Annotated[str, "a run; the first letters of its name are enough", {"metavar": "RUN"}],
    out: Annotated[Path, "a new folder"],
    *,
    step: Annotated[int | None, "step of a kept checkpoint (default: the last)"] = None,
    root: Root = None,
) -> int:
    """Write a run's EMA weights.

    Example: tread-lab export 3f2a weights --step 50000
    """
    from tread_lab.config.units import amount
    from tread_lab.evaluate.export import export as write_export

    for file, size in write_export(Lab.existing(root).known_run(name), out, step=step).items():
        print(f"{out / file}: {amount(size)}")
    return DONE
