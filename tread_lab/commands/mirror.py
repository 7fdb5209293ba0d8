"""MLflow beside the records: followed while a sweep runs, brought up to date after it."""

from __future__ import annotations

from argparse import Namespace
from contextlib import AbstractContextManager, nullcontext
from typing import Any

from tread_lab import screen
from tread_lab.records.lab import Lab
from tread_lab.specs.errors import UserError


def live_sync(options: Namespace, lab: Lab, name: str) -> AbstractContextManager[Any]:
    """For the block: MLflow follows a sweep's records, unless the options say no."""
    if options.no_mlflow:
        return nullcontext()
    from tread_lab.tracking.tracker import LiveSync

    return LiveSync(lambda: _tracker(lab), name)


def _tracker(lab: Lab) -> Any:
    from tread_lab.tracking.mlflow_tracker import MlflowTracker

    return MlflowTracker(lab, lab.mlflow_uri)


def sync_if_possible(lab: Lab, name: str) -> None:
    """A store that does not answer costs a finished sweep nothing but a line."""
    try:
        sync_now(lab, name)
    except UserError as error:
        screen.say(f"{error}; the records are complete, `tread-lab sync {name}` shows them later")


def sync_now(lab: Lab, name: str) -> Any:
    """Bring MLflow up to date with a sweep's records; what was done."""
    return _tracker(lab).sync(name)
