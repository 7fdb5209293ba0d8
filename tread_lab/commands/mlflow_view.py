"""MLflow's view of the records: followed while a sweep runs, brought up to date after it."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from tread_lab.records.lab import Lab
from tread_lab.specs.errors import UserError
from tread_lab.terminal.console import say
from tread_lab.tracking.live_sync import LiveSync, SyncReport

if TYPE_CHECKING:
    from tread_lab.tracking.mlflow_tracker import MlflowTracker


def live_sync(lab: Lab, name: str) -> LiveSync:
    """Return what lets MLflow follow a sweep's records within a block."""
    return LiveSync(partial(_tracker, lab), name)


def sync_if_possible(lab: Lab, name: str) -> None:
    """Sync a sweep; where the store does not answer, say so and go on."""
    try:
        sync_now(lab, name)
    except UserError as error:
        say(f"{error}; the records are complete, `tread-lab sync {name}` shows them later")


def sync_now(lab: Lab, name: str) -> SyncReport:
    """Bring MLflow up to date with a sweep's records; return what was done.

    Raises:
        UserError: the store is not MLflow's or does not answer.
    """
    return _tracker(lab).sync(name)


def _tracker(lab: Lab) -> MlflowTracker:
    from tread_lab.tracking.mlflow_tracker import MlflowTracker  # takes a second to import

    return MlflowTracker(lab, lab.mlflow_uri)
