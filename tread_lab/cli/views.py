"""The commands that show and export results: figures, report, dashboard, ui and export."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from tread_lab.cli.options import DONE, Host, OneSweep, Root
from tread_lab.records.lab import Lab


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
    from tread_lab.dashboards.contents import page_file
    from tread_lab.dashboards.versus import versus_file
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
    from tread_lab.cli.mlflow_view import sync_if_possible
    from tread_lab.tracking.store import ui as serve_ui

    lab = Lab.existing(root)
    for name in lab.sweeps():
        sync_if_possible(lab, name)
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
