"""When a sweep began and ended is told from its records, and what they lack is told, too."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.synthetic import small, write_sweep
from tread_lab.analysis.report import report
from tread_lab.analysis.report.times import newest_record, times_text
from tread_lab.records.durable import read_json, write_json
from tread_lab.records.log import append_line
from tread_lab.records.sweep_folder import Stopwatch, SweepFolder, last_worked

CREATED = 1795582780.0  # 25 November 2026, 04:59:40 UTC
SESSIONS = (("a", 300.0, 400.0), ("b", 20.0, 800.0), ("b", 360.0, 90_000.0))


@pytest.fixture(autouse=True)
def utc(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("TZ", "UTC")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


def worked(path: Path, sessions: int, *, timed: bool = True) -> SweepFolder:
    folder = SweepFolder(path)
    for session, seconds, after in SESSIONS[:sessions]:
        at = {"time": CREATED + after} if timed else {}
        append_line(folder.spent_path, {"session": session, "seconds": seconds, **at})
    return folder


@pytest.mark.parametrize(
    ("sessions", "timed", "done", "said"),
    [
        (2, True, True, "Began 25 November 2026, 04:59 UTC; ended 05:13 UTC; took 5 min."),
        (3, True, True, "; ended 26 November 2026, 05:59 UTC; took 11 min."),
        (2, False, True, "; ended about 05:06 UTC, by the newest record of its runs; took 5 min."),
        (2, True, False, "; not finished, and nobody works at it now, last 05:13 UTC; has taken"),
        (0, True, False, "04:59 UTC; not finished, and nobody works at it now."),
    ],
)
def test_times_are_those_of_the_drivers_or_else_of_the_newest_record(
    sessions: int, timed: bool, done: bool, said: str, tmp_path: Path
) -> None:
    folder = worked(tmp_path, sessions, timed=timed)
    assert said in times_text(folder, CREATED, done=done, newest=CREATED + 420)


def test_what_is_not_recorded_is_said(tmp_path: Path) -> None:
    text = "When it began is not recorded; when it ended is not recorded."
    assert times_text(SweepFolder(tmp_path), None, done=True) == text


@pytest.mark.parametrize(
    ("left", "said"),
    [("3 min", "about 3 min left"), ("...", "is not known yet"), ("", "a driver works at it")],
)
def test_a_driver_says_what_is_left(left: str, said: str, tmp_path: Path) -> None:
    folder = worked(tmp_path, 1)
    with contextlib.ExitStack() as stack:
        stack.enter_context(folder.lock())
        if left:
            folder.time_left_path.write_text(left)
        for done in (False, True):  # a search may have more to suggest
            text = times_text(folder, CREATED, done=done)
            assert said in text and text.endswith("; has taken 5 min so far.")


def test_a_session_is_noted_with_its_time_and_the_report_tells_it(
    tmp_path: Path, no_figures: None
) -> None:
    lab = write_sweep(tmp_path, small(history=True, routes=((2, 8),)))
    folder = lab.sweep("placement")
    newest = newest_record(lab, folder, folder.plan())
    (entry, *_) = reversed(lab.run(folder.plan().trials[0].run).entries())
    assert newest is not None and abs(newest - entry.time) < 60
    assert "ended about" in report.contents(lab, "placement")["times"]
    write_json(folder.plan_path, {**(read_json(folder.plan_path) or {}), "created": CREATED})
    Stopwatch(folder.spent_path).note(now=True)
    assert abs((last_worked(folder.spent_path) or 0.0) - time.time()) < 60
    assert newest_record(lab, folder, folder.plan()) is None
    shown = report.contents(lab, "placement")
    assert "Began 25 November 2026, 04:59 UTC; ended " in shown["times"]
    assert "about" not in shown["times"] and shown["times"] in report.render(shown)
