"""A sweep of eight trials, killed at random moments again and again until it is done.

Every kill is a SIGKILL of the driver and all its processes; then the same command is run again.
TREAD_LAB_KILLS says how often.
"""

from __future__ import annotations

import os
import random
import time
from pathlib import Path

import pytest

from tests.faults.compare import Book, check_quiet, check_store, outcome, replayed
from tests.faults.drivers import KILLED, Driver, Place, Zygote
from tests.faults.sweeps import EIGHT

KILLS = int(os.environ.get("TREAD_LAB_KILLS", 8 if "TREAD_LAB_LONG" in os.environ else 4))
CHECKPOINT_EVERY = 3  # steps
VALUES = 4  # logged at each step: loss, learning rate, images per second, norm of the gradient
TRIALS = 8


@pytest.mark.task(6)
@pytest.mark.slow
@pytest.mark.long("seeds")
@pytest.mark.timeout(900 + 10 * KILLS)
@pytest.mark.fault(
    1,
    survived="eight trials equal the undisturbed ones bitwise, each executed once; MLflow"
    " holds every value once",
)
def test_sweep_survives_random_kills(zygote: Zygote, tmp_path: Path) -> None:
    calm, torn = (Place(zygote, tmp_path / name) for name in ("calm", "torn"))
    for place in (calm, torn):
        place.folder.mkdir()
        place.write(sweep_of(KILLS))
    book = Book(torn.lab)
    for number in range(KILLS):
        torn.mlflow = number % 4 == 0  # a store that is written all the time takes most of the time
        with torn.sweep(prelude="eager_sync()\n") as driver:
            live_a_while(driver, torn)
            assert driver.kill() == KILLED, driver.said()
        book.note()
    torn.mlflow = True
    torn.finish(prelude="eager_sync()\n")
    calm.finish()
    expected = outcome(calm.lab)
    assert [run.state for run in expected.values()] == ["completed"] * TRIALS
    assert outcome(torn.lab) == expected
    assert sum(replayed(torn.lab).values()) <= KILLS * VALUES * CHECKPOINT_EVERY
    book.check()
    check_store(torn.lab, runs=TRIALS)
    check_quiet(torn.lab)


def sweep_of(kills: int) -> str:
    """Eight trials, long enough to be killed so often: a kill lets four or five windows pass."""
    steps = CHECKPOINT_EVERY * max(4, round(kills * 6 / TRIALS / CHECKPOINT_EVERY))
    text = EIGHT.replace("steps: 8", f"steps: {steps}")
    return text.replace("checkpoint_every: 2", f"checkpoint_every: {CHECKPOINT_EVERY}")


def live_a_while(driver: Driver, place: Place) -> None:
    """Let the driver log a few windows more, then a moment; sometimes not even start."""
    if windows := random.randrange(8):
        target = logged(place) + windows * VALUES
        driver.reach(lambda: logged(place) >= target)
        time.sleep(random.uniform(0, 0.1))
    else:
        time.sleep(random.uniform(0, 1))


def logged(place: Place) -> int:
    """Lines in all logs."""
    return sum(path.read_bytes().count(b"\n") for path in place.lab.root.glob("runs/*/log.jsonl"))
