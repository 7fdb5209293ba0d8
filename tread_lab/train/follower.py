"""A process beside the first of a run: it does what rank 0 names, until that names nothing."""

from __future__ import annotations

import os
import signal
import sys
import threading

import torch

from tread_lab.records.run_state import kind_of
from tread_lab.train.device import release
from tread_lab.train.ranks import OUT_OF_MEMORY, Ranks


def follow(device: torch.device) -> None:
    """Do with rank 0 each job that it names: train, draw images. It alone decides and writes.

    Signals that ask to stop reach every process of a job; rank 0 hears them for all.
    """
    for asks in (signal.SIGINT, signal.SIGTERM):
        signal.signal(asks, signal.SIG_IGN)
    ranks = Ranks(device)
    while (job := ranks.told()) is not None:
        job(device, ranks)
        release(device)
    ranks.end()


def _end_with_parent() -> None:
    """Wait for the end of the standard input, which rank 0 holds open as long as it lives."""
    sys.stdin.read()
    os._exit(1)


if __name__ == "__main__":
    threading.Thread(target=_end_with_parent, daemon=True).start()
    torch.set_num_threads(int(os.environ["OMP_NUM_THREADS"]))  # MKL may have taken fewer
    try:
        follow(torch.device(sys.argv[1]))
    except Exception as error:
        if kind_of(error) != "oom":
            raise
        sys.exit(OUT_OF_MEMORY)
