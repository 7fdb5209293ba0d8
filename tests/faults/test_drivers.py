"""Several drivers at once: on one sweep, on sweeps that share trials, on a fresh lab."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.faults.compare import Run, attempts, check_quiet, check_store, outcome
from tests.faults.drivers import DONE, MISTAKE, Place
from tests.faults.sweeps import SMALL

pytestmark = pytest.mark.slow
WINDOW = "tread_lab.train.trainer:Trainer.log_window"


@pytest.mark.fault(
    10,
    survived="the second refuses and names the process that has it; once that is dead it goes on,"
    " although the lock file is still there",
)
def test_a_second_driver_is_refused_until_the_first_is_dead(
    place: Place, expected: dict[str, Run]
) -> None:
    with place.sweep(prelude=f"gate({WINDOW!r}, nth=3, path='go')") as first:
        first.until(place.at_gate("go"))
        before = attempts(place.lab)
        with place.sweep() as second:
            assert second.wait() == MISTAKE
        assert f"in use by another process (pid {first.pid} on" in second.said()
        assert attempts(place.lab) == before and first.poll() is None
        first.kill()
    assert f"pid {first.pid}" in (place.lab.sweep("small").path / ".claim").read_text()
    place.finish()
    assert outcome(place.lab) == expected


@pytest.mark.fault(
    18,
    survived="each trial is computed once and used by both; both end well",
)
def test_two_sweeps_with_the_same_trials_at_once(place: Place, expected: dict[str, Run]) -> None:
    place.write(SMALL, "other")
    with place.sweep() as one, place.sweep(name="other") as two:
        assert (one.wait(), two.wait()) == (DONE, DONE), one.said() + two.said()
    assert outcome(place.lab) == expected
    assert set(attempts(place.lab).values()) == {1}
    check_quiet(place.lab)


@pytest.mark.fault(
    15,
    survived="no error; one store with every sweep and every trial in it, each once",
)
def test_several_starters_on_a_fresh_store(place: Place) -> None:
    place.mlflow = True
    names = ["a", "b", "c"]
    for seed, name in enumerate(names):
        place.write(SMALL.replace("0..1", "0") + f"seeds: [{seed}]\n", name)
    drivers = [place.sweep(name=name) for name in names]
    for driver in drivers:
        assert driver.wait() == DONE and "cannot" not in driver.said(), driver.said()
    assert len(attempts(place.lab)) == 6 and set(attempts(place.lab).values()) == {1}
    check_store(place.lab, runs=6)
    check_quiet(place.lab)


@pytest.mark.fault(
    16,
    survived="finished runs are found and what is new is run; a file that shares no run with the"
    " last one is refused with exit code 2",
)
def test_edited_sweep_file_trains_what_is_new(
    undisturbed: Place, tmp_path: Path, expected: dict[str, Run]
) -> None:
    place = undisturbed.copy(tmp_path)
    plan, before = place.lab.sweep("small").plan_path.read_bytes(), attempts(place.lab)
    with place.write(SMALL.replace("steps: 8", "steps: 9")).sweep() as driver:
        assert driver.wait() == MISTAKE
    assert place.lab.sweep("small").plan_path.read_bytes() == plan
    place.write(SMALL.replace("start: 0..1, end: 1..2", "start: 0..2, end: 1..3"))
    place.finish()
    after = outcome(place.lab)
    assert {run: after[run] for run in expected} == expected and len(after) == len(expected) + 1
    assert before.items() <= attempts(place.lab).items()
