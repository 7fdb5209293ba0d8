"""What the executor hands to Ray can be written to disk, whatever shows the progress."""

from __future__ import annotations

import threading

import pytest

from tread_lab.records.layout import Lab
from tread_lab.sweep.feed import ListFeed
from tread_lab.sweep.vigil import Vigil


def test_what_lives_in_the_driver_is_left_out_of_what_ray_writes(lab: Lab) -> None:
    pytest.importorskip("ray")
    from ray import cloudpickle

    from tread_lab.sweep import ray_executor

    lock = threading.Lock()  # a live display holds such, and nobody can pickle them
    with pytest.raises(TypeError, match="pickle"):
        cloudpickle.dumps(lambda report: lock)
    vigil = Vigil(lab, lambda attempt: None)
    watcher = ray_executor._Watcher(lab, lambda report: None, lock.locked, vigil)
    asks = ray_executor._Asks(ListFeed([]))
    asks.lock = lock  # type: ignore[attr-defined]
    for part in (watcher, asks, ray_executor._Stop(lock.locked)):
        assert isinstance(cloudpickle.loads(cloudpickle.dumps(part)), type(part))
