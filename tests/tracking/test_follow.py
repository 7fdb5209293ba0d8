"""A sweep is followed from the side, and whatever happens there stays there."""

from __future__ import annotations

import subprocess
import sys
import threading

import pytest

from tests.faults.drivers import eventually
from tread_lab.tracking import live as follow
from tread_lab.tracking.live import following


class Recorder:
    """A tracker that fails each time."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, int]] = []

    def sync(self, sweep: str) -> None:
        self.calls.append((sweep, threading.get_ident()))
        raise KeyError("anything")


@pytest.mark.parametrize("every", [0.01, 100.0])
def test_tracker_follows_in_a_thread(every: float, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(follow, "EVERY", every)
    tracker, failed = Recorder(), list[str]()
    with following(tracker, "s", failed.append):
        eventually(lambda: len(tracker.calls) >= 3 or every > 1)
    assert len(failed) == 1 and "anything" in failed[0]
    assert tracker.calls and tracker.calls[-1][0] == "s"
    assert threading.get_ident() not in {thread for _, thread in tracker.calls}


def test_following_imports_no_mlflow() -> None:
    code = (
        "import sys, tread_lab.tracking.live, tread_lab.tracking.store;"
        "sys.exit(any(name in sys.modules for name in ('mlflow', 'numpy', 'sqlalchemy')))"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
