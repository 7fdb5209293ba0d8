"""An MLflow server that comes and goes: training does not notice, and the store is whole later."""

from __future__ import annotations

import pytest

from tests.faults.compare import Run, check_store, outcome
from tests.faults.drivers import DONE, Place, eventually
from tests.tracking.conftest import Store
from tests.tracking.test_live_server import server
from tests.tracking.test_store import free_port

WINDOW = "tread_lab.train.trainer:Trainer.log_window"


@pytest.mark.slow
@pytest.mark.fault(
    14,
    survived="the same results; after one `tread-lab sync` every value of the records is there"
    " once, and no run is left running",
)
def test_mlflow_down_at_the_start_in_the_middle_and_at_the_end(
    place: Place, expected: dict[str, Run]
) -> None:
    port, place.mlflow = free_port(), True
    address = {"MLFLOW_TRACKING_URI": f"http://127.0.0.1:{port}"}
    gates = "".join(f"gate({WINDOW!r}, nth={n}, path='{p}')\n" for n, p in ((9, "a"), (17, "b")))
    store = Store(place.folder / "server.db")
    with place.sweep(prelude="eager_sync()\n" + gates, **address) as driver:
        driver.until(place.at_gate("a"))
        with server(place.folder, port):
            eventually(lambda: "RUNNING" in store.statuses().values(), 90, driver.said)
            place.open_gate("a")
            driver.until(place.at_gate("b"))
        place.open_gate("b")
        assert driver.wait() == DONE
    assert "; the records are complete" in driver.said()
    assert outcome(place.lab) == expected
    with server(place.folder, port), place.start("sync", "small", **address) as sync:
        assert sync.wait() == DONE, sync.said()
    check_store(place.lab, runs=len(expected), store=store)
