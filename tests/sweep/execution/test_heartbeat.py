"""A driver judges a silent process by the limit that it last wrote."""

from __future__ import annotations

import os

import pytest

from tests.sweep.trial.test_watchdog import Clock
from tread_lab.records.attempts import Attempt
from tread_lab.records.lab import Lab, RunFolder
from tread_lab.sweep.execution.heartbeat import HeartbeatMonitor


def begun(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> tuple[Clock, list[Attempt], HeartbeatMonitor, RunFolder]:
    """A clock, what was killed, and the monitor of run `a`, which has begun."""
    clock, killed = Clock(monkeypatch), list[Attempt]()
    monitor, folder = HeartbeatMonitor(lab, killed.append), lab.run("a")
    folder.attempts.open(pid=1)
    monitor.begin("a")
    return clock, killed, monitor, folder


def test_a_heartbeat_read_while_it_is_written_keeps_its_limit(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock, killed, monitor, folder = begun(lab, monkeypatch)
    for second, text in enumerate(("10.0", ""), 1):
        folder.heartbeat_path.write_text(text)
        os.utime(folder.heartbeat_path, (second, second))
        clock.pass_by(1.0)
        monitor.look()
    for _ in range(10 + 15 + 1):
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


def looks(lab: Lab, clock: Clock, monitor: HeartbeatMonitor, seconds: int) -> None:
    for _ in range(seconds):
        clock.pass_by(1.0)
        monitor.look()


def test_a_silence_of_the_limit_and_15_seconds_is_not_yet_too_long(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock, killed = Clock(monkeypatch), list[Attempt]()
    monitor, folder = HeartbeatMonitor(lab, killed.append), lab.run("a")
    folder.attempts.open(pid=1, host="h")
    folder.heartbeat_path.write_text("10.0")
    monitor.begin("a")
    looks(lab, clock, monitor, 1)  # the first look sees the file
    looks(lab, clock, monitor, 25)
    assert killed == []
    clock.pass_by(0.5)
    monitor.look()  # within a second of the last look
    assert killed == []
    looks(lab, clock, monitor, 1)
    assert [attempt.n for attempt in killed] == [1]
    said = "Process 1 on h gave no sign for 26 s, not even to its own watchdog: it was stopped"
    assert folder.stack_dump(1).read_text().startswith(said)


def test_what_has_ended_or_was_never_begun_is_not_killed(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock, killed = Clock(monkeypatch), list[Attempt]()
    monitor = HeartbeatMonitor(lab, killed.append)
    for name in ("ended", "none", "unlimited"):
        lab.run(name).path.mkdir(parents=True)
        lab.run(name).heartbeat_path.write_text("" if name == "unlimited" else "1.0")
        monitor.begin(name)
    attempts = lab.run("ended").attempts
    attempts.close(attempts.open(pid=1), "completed")
    lab.run("unlimited").attempts.open(pid=2)
    looks(lab, clock, monitor, 60)
    assert killed == []
    attempts.open(pid=3)  # the next attempt at the same run, as silent
    looks(lab, clock, monitor, 1)
    attempts.close(killed[0], "died")
    attempts.open(pid=4)
    looks(lab, clock, monitor, 1)
    assert [(attempt.n, attempt.pid) for attempt in killed] == [(2, 3), (3, 4)]


def test_a_driver_held_up_for_half_the_margin_begins_to_count_anew(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    for pause, deaths in ((7.5, 1), (7.75, 0)):
        clock, killed = Clock(monkeypatch), list[Attempt]()
        monitor, folder = HeartbeatMonitor(lab, killed.append), lab.run(f"a{pause}")
        folder.attempts.open(pid=1)
        folder.heartbeat_path.write_text("10.0")
        monitor.begin(folder.name)
        looks(lab, clock, monitor, 20)
        clock.pass_by(pause)
        monitor.look()
        assert len(killed) == deaths
        monitor.forget("no such run")


def test_a_driver_looks_a_second_after_its_start_for_the_first_time(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock, killed = Clock(monkeypatch), list[Attempt]()
    monitor, folder = HeartbeatMonitor(lab, killed.append), lab.run("a")
    folder.attempts.open(pid=os.getpid())
    folder.heartbeat_path.write_text("10.0")
    monitor.begin("a")
    clock.pass_by(0.5)
    monitor.look()  # sees nothing yet, so that its silence counts from the next look
    clock.pass_by(0.5)
    monitor.look()
    looks(lab, clock, monitor, 25)
    assert killed == []
    looks(lab, clock, monitor, 1)
    assert [attempt.n for attempt in killed] == [1]
    assert "\nState:\t" in folder.stack_dump(1).read_text()  # of this very process


def test_a_run_that_begins_again_has_a_fresh_heartbeat(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock, killed = Clock(monkeypatch), list[Attempt]()
    monitor, folder = HeartbeatMonitor(lab, killed.append), lab.run("a")
    folder.attempts.open(pid=1)
    folder.heartbeat_path.write_text("10.0")
    monitor.begin("a")
    looks(lab, clock, monitor, 20)
    monitor.forget("a")
    looks(lab, clock, monitor, 20)
    monitor.begin("a")
    looks(lab, clock, monitor, 26)
    assert killed == []
    looks(lab, clock, monitor, 1)
    assert [attempt.pid for attempt in killed] == [1]


def test_a_run_without_a_heartbeat_yet_is_left_alone_and_judged_once_it_has_one(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock, killed, monitor, folder = begun(lab, monkeypatch)
    looks(lab, clock, monitor, 60)
    assert killed == []
    folder.heartbeat_path.write_text("10.0")
    looks(lab, clock, monitor, 26)
    assert killed == []
    looks(lab, clock, monitor, 1)
    assert [attempt.pid for attempt in killed] == [1]
