"""Waits until a Ray cluster has as many nodes as a job asked for; a step of a batch job."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable

from ray._raylet import GcsClient  # type: ignore[attr-defined]

from tread_lab.specs.errors import Unavailable
from tread_lab.sweep.execution.cluster_heartbeat import answers

_PAUSE = 1.0  # seconds between two looks


def wait_for_nodes(count: int, seconds: float, alive: Callable[[], int]) -> None:
    """Wait until `alive` returns as many nodes.

    Raises:
        Unavailable: they were not all there in time; says how many were.
    """
    deadline = time.monotonic() + seconds
    while (joined := alive()) < count:
        if time.monotonic() > deadline:
            raise Unavailable(
                f"{joined} of {count} nodes have joined the Ray cluster within {seconds:g} s; the"
                " lines above say why, or `patience` in the batch file is too short"
            )
        time.sleep(_PAUSE)


def alive_nodes(address: str) -> int:
    """Return how many nodes are in the cluster at an address; 0 while it does not answer."""
    host, _, port = address.rpartition(":")
    if not answers((host, int(port)), within=_PAUSE):  # the client would try for a minute
        return 0
    try:
        infos = GcsClient(address=address).get_all_node_info(timeout=5)
    except Exception:  # Ray raises many kinds while a head starts
        return 0
    return sum(info.state == 0 for info in infos.values())  # GcsNodeInfo.ALIVE


if __name__ == "__main__":
    try:
        address = os.environ["RAY_ADDRESS"]
        wait_for_nodes(int(sys.argv[1]), float(sys.argv[2]), lambda: alive_nodes(address))
    except Unavailable as error:
        print(f"tread-lab: {error}", file=sys.stderr)
        sys.exit(error.exit_code)
