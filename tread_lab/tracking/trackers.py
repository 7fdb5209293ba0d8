"""The table of trackers: how each view of the records is opened, and the package that it needs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from typing import TYPE_CHECKING

from tread_lab.specs.errors import UserError

if TYPE_CHECKING:  # the command line lists the names at once
    from tread_lab.records.lab import Lab
    from tread_lab.tracking.tracker import Tracker


@dataclass(frozen=True)
class TrackerKind:
    """What belongs to one tracker."""

    make: Callable[[Lab], Tracker]
    package: str


def _mlflow(lab: Lab) -> Tracker:
    from tread_lab.tracking.mlflow_tracker import MlflowTracker

    return MlflowTracker(lab, lab.mlflow_uri)


def _tensorboard(lab: Lab) -> Tracker:
    from tread_lab.tracking.folder_tracker import FolderTracker, write_events

    return FolderTracker(lab, "tensorboard", write_events)


def _wandb(lab: Lab) -> Tracker:
    from tread_lab.tracking.folder_tracker import FolderTracker, write_run

    return FolderTracker(lab, "wandb", write_run, ended=True)


TRACKERS: Mapping[str, TrackerKind] = {
    "mlflow": TrackerKind(_mlflow, "mlflow"),
    "tensorboard": TrackerKind(_tensorboard, "tensorboardX"),
    "wandb": TrackerKind(_wandb, "wandb"),
}


def check_installed(trackers: Iterable[str]) -> None:
    """Refuse a tracker whose package is not installed.

    Raises:
        UserError: names the extra to install.
    """
    for name in trackers:
        if find_spec(TRACKERS[name].package) is None:
            raise UserError(
                f"--tracker {name}: `pip install tread-lab[{name}]` brings what it needs"
            )
