"""A sweep is synced from the side, and whatever happens there stays there."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from types import SimpleNamespace
from typing import Any

import pytest

from tests.faults.drivers import eventually
from tread_lab.tracking.live_sync import LiveSync, SyncReport


class Recorder:
    """A tracker that notes its calls and fails when told to."""

    def __init__(self, failure: Exception | None = None, seconds: float = 0.0) -> None:
        self.calls: list[tuple[str, bool]] = []
        self.threads: set[int] = set()
        self.failure, self.seconds = failure, seconds

    def sync(self, sweep_name: str, *, closing: bool = False) -> SyncReport:
        self.calls.append((sweep_name, closing))
        self.threads.add(threading.get_ident())
        time.sleep(self.seconds)
        if self.failure is not None:
            raise self.failure
        return SyncReport(sweep_name, runs=len(self.calls))


def test_it_syncs_now_and_then_and_once_at_the_end() -> None:
    tracker = Recorder()
    with LiveSync(lambda: tracker, "s", every=0.01) as live:
        eventually(lambda: len(tracker.calls) >= 3)
    assert tracker.calls[-1] == ("s", True)
    assert set(tracker.calls[:-1]) == {("s", False)}
    assert tracker.threads.isdisjoint({threading.get_ident()})
    assert (live._thread.name, live._thread.daemon) == ("live-sync", True)  # ends with the process
    assert not live.failed


def test_a_failure_is_forgotten_when_it_works_again() -> None:
    tracker = Recorder(OSError("no server"))
    with LiveSync(lambda: tracker, "s", every=0.01) as live:
        eventually(lambda: live.failed)
        tracker.failure = None
        eventually(lambda: not live.failed)
        tracker.failure = KeyError("anything")
    assert live.failed


def test_a_tracker_that_cannot_be_built_stops_nothing_and_is_built_later() -> None:
    tracker, tries = Recorder(), ["no mlflow"]

    def broken() -> Recorder:
        if tries:
            raise ImportError(tries.pop())
        return tracker

    with LiveSync(broken, "s", every=100) as live:
        assert live.failed
    assert not live.failed and tracker.calls[-1] == ("s", True)


def test_a_store_that_hangs_does_not_hold_the_sweep() -> None:
    live = LiveSync(lambda: Recorder(seconds=30), "s", every=100).start()
    before = time.monotonic()
    live.stop(timeout=0.1)
    assert time.monotonic() - before < 20


def test_stopping_what_was_not_started_is_harmless() -> None:
    LiveSync(Recorder, "s").stop()


def test_a_report_is_one_line() -> None:
    report = SyncReport("s", runs=3, created=1, unchanged=2, values=9, problems=("a: b",))
    assert str(report) == (
        "s: 3 runs (1 created, 0 updated, 2 unchanged), 9 values sent;"
        " 1 with problems, the first: a: b"
    )
    removed = "s: 0 runs (0 created, 0 updated, 0 unchanged, 2 removed), 0 values sent"
    assert str(SyncReport("s", removed=2)) == removed


def test_watching_and_serving_do_not_import_mlflow() -> None:
    code = (
        "import sys, tread_lab.tracking.live_sync, tread_lab.tracking.store;"
        "sys.exit(any(name in sys.modules for name in ('mlflow', 'numpy', 'sqlalchemy')))"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


@pytest.mark.parametrize(
    ("every", "attempts", "pauses"),
    [
        (5.0, [1.0, 3.0, None, None, None, None, 0.1], [5, 5, 12, 24, 48, 60, 60, 5]),
        (100.0, [1.0, None, None], [100, 100, 100, 100]),
    ],
)
def test_a_sync_takes_a_fifth_of_the_time_and_failures_double_the_pause(
    every: float,
    attempts: list[float | None],
    pauses: list[float],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """An attempt is the seconds that it took, or `None` where it failed."""
    waited: list[float] = []
    done: list[bool] = []
    live: Any = LiveSync(Recorder, "s", every=every)
    left = iter([*attempts, 0.0])

    def attempt(*, closing: bool) -> float:
        took = next(left)
        live.failed = took is None
        done.append(closing)
        return took or 0.0

    monkeypatch.setattr(live, "_attempt", attempt)
    waits = SimpleNamespace(wait=lambda pause: waited.append(pause) or len(waited) > len(attempts))
    monkeypatch.setattr(live, "_leaving", waits)
    live._watch()
    assert waited == pauses
    assert done == [False] * len(attempts) + [True]
