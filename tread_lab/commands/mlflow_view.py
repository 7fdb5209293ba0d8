"""MLflow's view of the records: followed while a sweep runs, brought up to date after it."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext

from tread_lab.records.lab import Lab
from tread_lab.specs.errors import UserError
from tread_lab.terminal.console import say
from tread_lab.tracking.tracker import LiveSync, SyncReport, Tracker


def live_sync(lab: Lab, name: str, *, off: bool = False) -> AbstractContextManager[object]:
    """Return a context in which MLflow follows a sweep's records, unless it is `off`."""
    return nullcontext() if off else LiveSync(lambda: _tracker(lab), name)


def _tracker(lab: Lab) -> Tracker:
    from tread_lab.tracking.mlflow_tracker import MlflowTracker  # imports mlflow

    return MlflowTracker(lab, lab.mlflow_uri)


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
