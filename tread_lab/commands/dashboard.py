"""The dashboard command: serve the pages of a lab until it is interrupted."""

from __future__ import annotations

from tread_lab.commands.exit_codes import DONE
from tread_lab.dashboards.app import serve
from tread_lab.records.lab import Lab
from tread_lab.screen.console import say


def run(*, root: str | None, host: str, port: int) -> int:
    """Serve the dashboard, also of a lab without a sweep; return the exit code."""
    serve(Lab.at(root), host=host, port=port, say=say)
    return DONE
