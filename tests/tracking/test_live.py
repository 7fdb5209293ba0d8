"""A sweep is followed from the side; trackers of accelerate get each run live and once."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from tests.faults.drivers import eventually
from tests.tracking.conftest import Sweeps
from tread_lab.config import UserError
from tread_lab.records.lab import Lab
from tread_lab.records.metric_names import GAP_HELDOUT
from tread_lab.records.run_state import RunState
from tread_lab.tracking import live
from tread_lab.tracking.live import OtherTracker, check_tracker, following


@pytest.fixture
def sent(monkeypatch: pytest.MonkeyPatch) -> dict[str, list[Any]]:
    """What trackers were sent by the name of the run."""
    from accelerate import tracking

    found: dict[str, list[Any]] = {}

    class Tracker(tracking.GeneralTracker):  # type: ignore[misc]
        name, requires_logging_directory = "aim", False
        tracker = None

        def __init__(self, name: str) -> None:
            super().__init__(_blank=True)
            self.values = found.setdefault(name, [])

        def start(self) -> None:
            pass

        def store_init_configuration(self, values: dict[str, Any]) -> None:
            self.values.append(values)

        def log(self, values: dict[str, float], step: int | None = None) -> None:
            self.values.append((step, values))

        def finish(self) -> None:
            self.values.append("finished")

    monkeypatch.setitem(tracking.LOGGER_TYPE_TO_CLASS, "aim", Tracker)
    return found


def test_runs_are_sent_live_and_once(lab: Lab, sweeps: Sweeps, sent: dict[str, list[Any]]) -> None:
    dense, routed, _ = sweeps.plan()
    sweeps.finish(dense)
    tracker = OtherTracker(lab, "aim", "placement")
    tracker.sync("placement")
    assert sent == {}, "ended before"
    run = sweeps.log(routed, 5, 20)
    with run.lock():
        tracker.sync("placement")
    (values,) = sent.values()
    assert list(sent) == ["placement/0->2 s=0.5 seed 0"]
    assert values[0]["start"] == 0 and len(values) == 1 + len(run.entries())
    run.finish(RunState.COMPLETED, step=40)
    sweeps.measure(routed)
    for _ in range(2):
        tracker.sync("placement")
    assert values[-1] == "finished" and len(values) == 3 + len(run.entries())
    assert values[-2][0] == 40 and GAP_HELDOUT in values[-2][1]


@pytest.mark.parametrize(
    ("name", "line"),
    [("wnadb", "did you mean 'wandb'"), ("comet_ml", "--tracker comet_ml: comet-ml is not inst")],
)
def test_unusable_trackers_are_refused(name: str, line: str) -> None:
    with pytest.raises(UserError, match=line):
        check_tracker(name)


class Recorder:
    """A tracker that fails each time."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, int]] = []

    def sync(self, sweep: str) -> None:
        self.calls.append((sweep, threading.get_ident()))
        raise KeyError("anything")


@pytest.mark.parametrize("every", [0.01, 100.0])
def test_tracker_follows_in_a_thread(every: float, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live, "EVERY", every)
    tracker, failed = Recorder(), list[str]()
    with following(tracker.sync, "s", failed.append):
        eventually(lambda: len(tracker.calls) >= 3 or every > 1)
    assert len(failed) == 1 and "anything" in failed[0]
    assert tracker.calls and tracker.calls[-1][0] == "s"
    assert threading.get_ident() not in {thread for _, thread in tracker.calls}
