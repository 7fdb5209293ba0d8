"""A driver judges a silent process by the limit that it last wrote."""

from __future__ import annotations

import os

import pytest

from tests.sweep.trial.test_watchdog import Clock
from tread_lab.records.attempts import Attempt
from tread_lab.records.lab import Lab
from tread_lab.sweep.execution.heartbeat import MARGIN, HeartbeatMonitor


def test_a_heartbeat_read_while_it_is_written_keeps_its_limit(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock, killed = Clock(monkeypatch), list[Attempt]()
    monitor, folder = HeartbeatMonitor(lab, killed.append), lab.run("a")
    folder.attempts.open(pid=1)
    monitor.begin("a")
    for second, text in enumerate(("10.0", ""), 1):
        folder.heartbeat_path.write_text(text)
        os.utime(folder.heartbeat_path, (second, second))
        clock.pass_by(1.0)
        monitor.look()
    for _ in range(int(10 + MARGIN) + 1):
        assert killed == []
        clock.pass_by(1.0)
        monitor.look()
    assert [attempt.pid for attempt in killed] == [1]


def test_a_silent_attempt_is_killed_once(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    clock, killed = Clock(monkeypatch), list[Attempt]()
    monitor, folder = HeartbeatMonitor(lab, killed.append), lab.run("a")
    folder.attempts.open(pid=1)
    folder.heartbeat_path.write_text("10.0")
    monitor.begin("a")
    for _ in range(60):
        clock.pass_by(1.0)
        monitor.look()
    assert [(attempt.n, attempt.pid) for attempt in killed] == [(1, 1)]
    assert folder.stack_dump(1).read_text().startswith("Process 1 on ")
