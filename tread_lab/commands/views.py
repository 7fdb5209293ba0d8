"""The commands that show results: figures, report, dashboard and MLflow's pages."""

from __future__ import annotations

from tread_lab.commands.options import DONE, Dashboard, Figures, Report, Ui
from tread_lab.records.lab import Lab
from tread_lab.terminal.console import say


def figures(options: Figures) -> int:
    """Draw every figure that a sweep's records support, print the paths; return the exit code."""
    from tread_lab.analysis.figures.catalogue import write_figures

    lab = Lab.existing(options.root)
    for path in write_figures(lab, lab.known_sweep(options.name).name):
        print(path)
    return DONE


def report(options: Report) -> int:
    """Write the page of a sweep, or of two side by side, print its path; return the exit code."""
    from tread_lab.dashboards.contents import page_file
    from tread_lab.dashboards.versus import versus_file
    from tread_lab.records.durable import write_text

    lab = Lab.existing(options.root)
    folder = lab.known_sweep(options.name)
    if options.other is None:
        path, text = folder.path / "report.html", page_file(lab, folder.name)
    else:
        path = folder.path / f"report-{options.other}.html"
        text = versus_file(lab, folder.name, options.other)
    path = options.output or path
    write_text(path, text)
    print(path)
    return DONE


def dashboard(options: Dashboard) -> int:
    """Serve the dashboard, also of a lab without a sweep; return the exit code."""
    from tread_lab.dashboards.server import serve

    serve(Lab.at(options.root), host=options.host, port=options.port, say=say)
    return DONE


def ui(options: Ui) -> int:
    """Bring the MLflow store up to date and serve its pages; return the exit code."""
    from tread_lab.commands.mlflow_view import sync_if_possible
    from tread_lab.tracking.store import ui as serve_ui

    lab = Lab.existing(options.root)
    for name in lab.sweeps():
        sync_if_possible(lab, name)
    serve_ui(lab, host=options.host, port=options.port)
    return DONE
