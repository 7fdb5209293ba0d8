"""A sweep of eight trials, killed at random moments again and again until it is done."""

from __future__ import annotations

import os
import random
from pathlib import Path

import pytest

from tests.faults.crash import TRIALS, crash
from tests.faults.drivers import Zygote

KILLS = 8 if "TREAD_LAB_LONG" in os.environ else 4


@pytest.mark.slow
@pytest.mark.long("seeds")
@pytest.mark.timeout(900)
@pytest.mark.fault(
    1,
    survived="eight trials, none lost, none executed twice, none different from the undisturbed"
    " sweep by a bit; MLflow's store holds every value once and no run is left running",
)
def test_killed_at_random_moments_again_and_again(zygote: Zygote, tmp_path: Path) -> None:
    seed = random.randrange(10**6)
    print(f"seed {seed}")
    tally, found = crash(zygote, tmp_path, kills=KILLS, seed=seed)
    print(tally)
    assert tally.kills == KILLS and len(found) == TRIALS
    assert (tally.lost, tally.duplicated, tally.different) == (0, 0, 0)
    assert tally.redone <= tally.at_most
