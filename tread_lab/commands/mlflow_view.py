"""Trackers' views of the records: followed while a sweep runs, brought up to date after it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial

from tread_lab.commands.options import Sweep
from tread_lab.records.lab import Lab
from tread_lab.specs.errors import UserError
from tread_lab.terminal.console import say
from tread_lab.tracking.tracker import LiveSync, SyncReport
from tread_lab.tracking.trackers import TRACKERS, check_installed

MLFLOW = ("mlflow",)


def check_trackers(options: Sweep) -> None:
    """Refuse MLflow if it is left out as well, and a tracker whose package is not installed.

    Raises:
        UserError: says what to do.
    """
    if options.no_mlflow and "mlflow" in options.tracker:
        raise UserError("--no-mlflow, --tracker mlflow: leave one out")
    check_installed(options.tracker)


@contextmanager
def live_sync(lab: Lab, name: str, trackers: Sequence[str]) -> Iterator[None]:
    """Let each tracker follow a sweep's records within the block."""
    with ExitStack() as stack:
        for kind in trackers:
            stack.enter_context(LiveSync(partial(TRACKERS[kind].make, lab), name))
        yield


def sync_if_possible(lab: Lab, name: str, trackers: Sequence[str] = MLFLOW) -> None:
    """Sync a sweep; where a store does not answer, say so and go on."""
    for tracker in trackers:
        try:
            sync_now(lab, name, tracker)
        except UserError as error:
            command = f"sync {name}" if tracker in MLFLOW else f"sync {name} --tracker {tracker}"
            say(f"{error}; the records are complete, `tread-lab {command}` shows them later")


def sync_now(lab: Lab, name: str, tracker: str) -> SyncReport:
    """Bring a tracker up to date with a sweep's records; return what was done.

    Raises:
        UserError: the store is not the tracker's or does not answer.
    """
    return TRACKERS[tracker].make(lab).sync(name)
