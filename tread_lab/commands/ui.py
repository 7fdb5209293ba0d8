"""The ui command: serve the MLflow pages of a lab until it is interrupted."""

from __future__ import annotations

from tread_lab.commands.exit_codes import DONE
from tread_lab.commands.mlflow_view import sync_if_possible
from tread_lab.records.lab import Lab
from tread_lab.tracking.ui import ui


def run(*, root: str | None, host: str, port: int) -> int:
    """Bring the MLflow store up to date and serve its pages; return the exit code."""
    lab = Lab.existing(root)
    for name in lab.sweeps():
        sync_if_possible(lab, name)
    ui(lab, host=host, port=port)
    return DONE
