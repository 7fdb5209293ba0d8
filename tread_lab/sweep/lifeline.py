"""Notices that a cluster has gone for good while its driver waits for it, and ends the driver."""

from __future__ import annotations

import contextlib
import os
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence

from tread_lab.spec.errors import Unavailable

Address = tuple[str, int]

_EVERY = 3.0  # seconds between two knocks, and for an answer
_PATIENCE = 30.0  # seconds without an answer


@contextlib.contextmanager
def lifeline(addresses: Sequence[Address], lost: Callable[[str], None]) -> Iterator[None]:
    """Knock at every address within the block; call `lost` once one has not answered for long.

    Ray's own calls wait for ever then, so this is done from a thread, and `lost` has to end the
    process, such as `leave`.
    """
    over = threading.Event()
    watch = threading.Thread(
        target=_watch, args=(addresses, lost, over), name="lifeline", daemon=True
    )
    watch.start()
    try:
        yield
    finally:
        over.set()


def leave(message: str) -> None:
    """End this process at once with one line: what is on record is whole, whatever is cut short."""
    cursor = "\x1b[?25h" if sys.stderr.isatty() else ""  # a live display may have hidden it
    os.write(2, f"{cursor}\ntread-lab: {message}\n".encode())
    os._exit(Unavailable.exit_code)


def _watch(
    addresses: Sequence[Address], lost: Callable[[str], None], over: threading.Event
) -> None:
    heard = dict.fromkeys(addresses, time.monotonic())
    before = time.monotonic()
    while not over.wait(_EVERY):
        late = max(time.monotonic() - before - 3 * _EVERY, 0)  # this process was held up itself
        before = time.monotonic()
        for address in addresses:
            heard[address] = time.monotonic() if _answers(address) else heard[address] + late
            if time.monotonic() - heard[address] > _PATIENCE and not over.is_set():
                lost(
                    f"the Ray cluster is lost ({address[0]}:{address[1]} has not answered for"
                    f" {_PATIENCE:.0f} s); records and checkpoints are whole, and the same command"
                    " goes on with another cluster"
                )
                return


def _answers(address: Address) -> bool:
    try:
        with socket.create_connection(address, timeout=_EVERY):
            return True
    except OSError:
        return False
