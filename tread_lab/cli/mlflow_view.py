"""The tracker of a sweep: followed while the sweep runs, brought up to date after it."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING

from tread_lab.cli.console import say
from tread_lab.config.errors import UserError
from tread_lab.records.lab import Lab
from tread_lab.records.run_state import RunState
from tread_lab.tracking.live import following

if TYPE_CHECKING:
    from tread_lab.tracking.mlflow_tracker import MlflowTracker
    from tread_lab.tracking.shown_run import ShownSweep

MLFLOW, NONE = "mlflow", "none"


def check_known(tracker: str) -> None:
    """Refuse a tracker that is unknown or whose package is not installed."""
    if tracker not in (MLFLOW, NONE):
        from tread_lab.tracking.other_trackers import check_tracker  # imports accelerate

        check_tracker(tracker)


def tracked(lab: Lab, name: str, tracker: str) -> AbstractContextManager[None]:
    """Return what lets a tracker follow a sweep's records within a block."""
    if tracker == NONE:
        return nullcontext()
    if tracker == MLFLOW:
        return following(mlflow_tracker(lab), name)
    from tread_lab.tracking.other_trackers import OtherTracker

    failed = f"--tracker {tracker}: the last values were not sent: "
    return following(OtherTracker(lab, tracker, name), name, lambda line: say(failed + line))


def sync_if_possible(lab: Lab, name: str) -> None:
    """Sync a sweep with MLflow; where the store does not answer, say so and go on."""
    try:
        mlflow_tracker(lab).sync(name)
    except UserError as error:
        say(f"{error}; the records are complete, `tread-lab sync {name}` shows them later")


def mlflow_tracker(lab: Lab) -> MlflowTracker:
    """Return the tracker of the lab's MLflow store."""
    from tread_lab.tracking.mlflow_tracker import MlflowTracker  # takes a second to import

    return MlflowTracker(lab, lab.mlflow_uri, answer=_answer)


def _answer(shown: ShownSweep) -> str:
    """Return what a sweep answers, once all of its runs have ended."""
    from tread_lab.results.answer import answer

    if not all(RunState(state).ended for state in shown.frame["state"]):
        return ""
    found = answer(shown.lab, shown.frame)
    return f"{found.sentence} {found.certainty}"
