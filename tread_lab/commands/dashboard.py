"""The dashboard command: serve the pages of a lab until it is interrupted."""

from __future__ import annotations

from dataclasses import dataclass

from tread_lab.commands.exit_codes import DONE
from tread_lab.dashboards.app import serve
from tread_lab.records.lab import Lab
from tread_lab.screen.console import say


@dataclass(frozen=True)
class Options:
    """The options of `tread-lab dashboard`."""

    root: str | None
    host: str
    port: int


def run(options: Options) -> int:
    """Serve the dashboard, also of a lab without a sweep; return the exit code."""
    serve(Lab.at(options.root), host=options.host, port=options.port, say=say)
    return DONE
