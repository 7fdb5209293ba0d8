"""Several drivers at once: on one sweep, on sweeps that share trials, on a fresh lab."""

from __future__ import annotations

import pytest

from tests.faults.compare import Run, attempts, outcome
from tests.faults.drivers import MISTAKE, Place
from tests.faults.sweeps import SMALL

pytestmark = pytest.mark.slow
WINDOW = "tread_lab.engine.live_run:LiveRun.log_window"


@pytest.mark.fault(
    10,
    done="a second driver on a running sweep, then again after the first was killed with SIGKILL",
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
    16,
    done="the sweep file edited after launch: more steps, then another axis",
    survived="refused with exit code 2 before anything runs; the plan and the results stay",
)
def test_an_edited_sweep_file_is_refused(undisturbed: Place, expected: dict[str, Run]) -> None:
    plan = (undisturbed.lab.sweep("small").plan_path).read_bytes()
    for change in (("steps: 24", "steps: 30"), ("start: 0..1", "start: 0")):
        undisturbed.write(SMALL.replace(*change))
        with undisturbed.sweep() as driver:
            assert driver.wait() == MISTAKE
        assert "was planned with other trials" in driver.said()
    undisturbed.write(SMALL)
    assert undisturbed.lab.sweep("small").plan_path.read_bytes() == plan
    assert outcome(undisturbed.lab) == expected
