"""SIGKILL and signals: a sweep continues where it was, and repeats nothing that was finished."""

from __future__ import annotations

import signal

import pytest

from tests.faults.compare import Book, Run, attempts, check_quiet, outcome, replayed
from tests.faults.drivers import KILLED, STOPPED, Place

pytestmark = pytest.mark.slow
WINDOW = "tread_lab.train.trainer:Trainer.log_window"
INTERVAL = 2 * 3  # log lines of one checkpoint interval: two windows of three values


@pytest.mark.task(6)
@pytest.mark.fault(
    1,
    survived="losses, metrics and weights are equal bitwise; a kill costs at most one"
    " checkpoint interval",
)
def test_killed_driver_costs_one_checkpoint_interval(
    place: Place, expected: dict[str, Run]
) -> None:
    book, kills = Book(place.lab), 0
    while len(book.finished) < 2:  # the windows of a trial that was resumed count from there
        assert place.sweep(prelude=f"die({WINDOW!r}, nth=5, after=True)").wait() == KILLED
        book.note()
        kills += 1
    place.finish()
    assert outcome(place.lab) == expected
    assert kills >= 3 and sum(replayed(place.lab).values()) <= kills * INTERVAL
    book.check()
    check_quiet(place.lab)


@pytest.mark.task(3, 4)
@pytest.mark.fault(
    3,
    survived="exit code 130; a checkpoint of the last step, where the same command resumes",
)
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM], ids=["SIGINT", "SIGTERM"])
def test_signal_stops_with_a_checkpoint(
    place: Place, expected: dict[str, Run], number: signal.Signals
) -> None:
    lab, book = place.lab, Book(place.lab)
    with place.sweep(prelude=f"gate({WINDOW!r}, nth=11, path='go')") as driver:
        driver.until(place.at_gate("go"))
        driver.signal(number)
        place.open_gate("go")
        assert driver.wait() == STOPPED, driver.said()
    assert "rerun the command to continue" in driver.said() and "Traceback" not in driver.said()
    states = sorted(lab.run(run).state() for run in attempts(lab))
    assert states == ["completed", "interrupted"]
    book.note()
    place.finish()
    assert outcome(lab) == expected
    assert set(replayed(lab).values()) == {0}
    book.check()
