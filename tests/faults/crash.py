"""Kills a sweep at random moments until it is done: `python tests/faults/crash.py --kills 200`.

Every kill is a SIGKILL of the driver and all its processes; then the same command is run again.
At the end the lab and its MLflow store must be those of a sweep that nobody disturbed.
"""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))

from tests.faults.compare import (
    Book,
    Run,
    attempts,
    check_quiet,
    check_store,
    outcome,
    replayed,
)
from tests.faults.drivers import DONE, KILLED, Driver, Place, Zygote
from tests.faults.sweeps import EIGHT

LOG_EVERY, CHECKPOINT_EVERY = 1, 3  # steps
VALUES = 4  # logged at a time: loss, learning rate, images per second, norm of the gradient
INTERVAL = VALUES * CHECKPOINT_EVERY // LOG_EVERY  # log lines that one kill can cost a trial
TRIALS = 8
OFTEN = "LiveSync.__init__.__kwdefaults__['every'] = 0.3\n"
PRELUDE = "from tread_lab.tracking.tracker import LiveSync\n" + OFTEN


@dataclass(frozen=True)
class Tally:
    """What came of it."""

    kills: int
    lost: int
    duplicated: int
    different: int
    redone: int
    at_most: int
    seconds: float

    def __str__(self) -> str:
        return (
            f"{self.kills} kills in {self.seconds:.0f} s: {self.lost} of {TRIALS} trials lost,"
            f" {self.duplicated} executed again after they had finished, {self.different} different"
            f" from the undisturbed sweep; {self.redone} log lines written again"
            f" (at most {self.at_most})"
        )


def sweep_of(kills: int) -> str:
    """Eight trials, long enough to be killed so often: a kill lets four or five windows pass."""
    steps = CHECKPOINT_EVERY * round(kills * 6 * LOG_EVERY / TRIALS / CHECKPOINT_EVERY)
    steps = max(12, steps)
    recipe = f"log_every: {LOG_EVERY}, checkpoint_every: {CHECKPOINT_EVERY}"
    text = EIGHT.replace("steps: 8", f"steps: {steps}")
    return text.replace("log_every: 1, checkpoint_every: 2", recipe)


def crash(zygote: Zygote, folder: Path, *, kills: int, seed: int) -> tuple[Tally, dict[str, Run]]:
    """Kill the sweep `kills` times in `folder`, let it end, and compare."""
    calm, torn = (Place(zygote, folder / name) for name in ("calm", "torn"))
    for place in (calm, torn):
        place.folder.mkdir(parents=True)
        place.write(sweep_of(kills))
    chance, book, started = random.Random(seed), Book(torn.lab), time.monotonic()
    done = 0
    while done < kills:
        torn.mlflow = done % 4 == 0  # a store that is written all the time takes most of the time
        driver = torn.sweep(prelude=PRELUDE)
        _live_a_while(driver, torn, chance)
        status = driver.kill()
        if status == DONE:
            break
        assert status == KILLED, driver.said()
        done += 1
        book.note()
    torn.mlflow = True
    torn.finish(prelude=PRELUDE)
    calm.finish()
    tally, found = _compared(calm, torn, book, done)
    at_most = done * INTERVAL
    return Tally(done, *tally, at_most, time.monotonic() - started), found


def _live_a_while(driver: Driver, place: Place, chance: random.Random) -> None:
    """Let the driver log a few windows more, then a moment; sometimes not even start."""
    windows = chance.choice((0, 1, 2, 3, 4, 5, 6, 7))
    target = _logged(place) + windows * VALUES
    if windows:
        driver.reach(lambda: _logged(place) >= target)
        time.sleep(chance.uniform(0, 0.1))
    else:
        time.sleep(chance.uniform(0, 1))


def _logged(place: Place) -> int:
    """Lines in all logs."""
    return sum(path.read_bytes().count(b"\n") for path in place.lab.root.glob("runs/*/log.jsonl"))


def _compared(
    calm: Place, torn: Place, book: Book, kills: int
) -> tuple[tuple[int, int, int, int], dict[str, Run]]:
    expected, found = outcome(calm.lab), outcome(torn.lab)
    lost = [run for run in expected if run not in found or found[run].state != "completed"]
    now = attempts(torn.lab)
    again = [run for run, count in book.finished.items() if now[run] != count]
    different = [run for run in found if found[run] != expected.get(run)]
    check_store(torn.lab, runs=TRIALS)
    check_quiet(torn.lab)
    redone = sum(replayed(torn.lab).values())
    return (len(lost), len(again), len(different), redone), found


def main() -> int:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--kills", type=int, default=200)
    options.add_argument("--seed", type=int, default=random.randrange(10**6))
    given = options.parse_args()
    print(f"seed {given.seed}", flush=True)
    zygote = Zygote()
    try:
        with tempfile.TemporaryDirectory() as folder:
            tally, _ = crash(zygote, Path(folder), kills=given.kills, seed=given.seed)
    finally:
        zygote.close()
    print(tally)
    bad = tally.lost or tally.duplicated or tally.different or tally.kills < given.kills
    return int(bool(bad) or tally.redone > tally.at_most)


if __name__ == "__main__":
    sys.exit(main())
