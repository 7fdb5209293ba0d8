"""Two drivers at once: on one sweep, and on sweeps that share runs."""

from __future__ import annotations

import pytest

from tests.faults.compare import Run, attempts, check_quiet, outcome
from tests.faults.drivers import DONE, MISTAKE, Place
from tests.faults.sweeps import SMALL

pytestmark = pytest.mark.slow
WINDOW = "tread_lab.train.trainer:Trainer.log_window"


@pytest.mark.fault(
    10,
    survived="the second is refused, with the first one's process ID, until the first has ended",
)
def test_second_driver_is_refused(place: Place, expected: dict[str, Run]) -> None:
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


@pytest.mark.fault(18, survived="each trial is computed once and used by both")
def test_two_sweeps_share_runs_at_once(place: Place, expected: dict[str, Run]) -> None:
    place.write(SMALL, "other")
    with place.sweep() as one, place.sweep(name="other") as two:
        assert (one.wait(), two.wait()) == (DONE, DONE), one.said() + two.said()
    assert outcome(place.lab) == expected
    assert set(attempts(place.lab).values()) == {1}
    check_quiet(place.lab)
