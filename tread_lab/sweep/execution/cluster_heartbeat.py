"""Driver-side monitor of the Ray cluster: ends the driver with one line once it is lost."""

from __future__ import annotations

import contextlib
import os
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from tread_lab.specs.errors import Unavailable

Address = tuple[str, int]

_EVERY = 2.0  # seconds between two knocks, and for an answer
PATIENCE = 30.0  # seconds without an answer of another machine, which may only be held up
OWN_PATIENCE = 5.0  # of this machine's daemon; Ray ends the driver without a word after about 12
_LOOK = 0.1  # seconds between two looks at child processes


@contextlib.contextmanager
def monitor_addresses(
    addresses: Mapping[Address, float], lost: Callable[[str], None]
) -> Iterator[None]:
    """Knock at every address within the block; call `lost` once one is silent for its seconds.

    Ray's own calls wait for ever then, so this is done from a thread, and `lost` has to end the
    process, such as `leave`.
    """
    with _thread(_watch, dict(addresses), lost):
        yield


@contextlib.contextmanager
def monitor_daemons(ended: Callable[[], str], lost: Callable[[str], None]) -> Iterator[None]:
    """Ask within the block which daemon of a cluster started here has ended; then call `lost`.

    Args:
        ended: the name of a daemon that has ended; empty while all live.
    """
    with _thread(_look, ended, lost):
        yield


@contextlib.contextmanager
def _thread(target: Callable[..., None], *arguments: Any) -> Iterator[None]:
    over = threading.Event()
    thread = threading.Thread(
        target=target, args=(*arguments, over), name="cluster-heartbeat", daemon=True
    )
    thread.start()
    try:
        yield
    finally:
        over.set()


def leave(
    message: str,
    last: Callable[[], None] = lambda: None,
    *,
    code: int = Unavailable.exit_code,
) -> None:
    """End this process at once with one line: what is on record is whole, whatever is cut short.

    Args:
        last: what is still to be done; nothing that Ray prints meanwhile is seen.
        code: the exit code of the process.
    """
    cursor = "\x1b[?25h" if sys.stderr.isatty() else ""  # a live display may have hidden it
    os.write(2, f"{cursor}\ntread-lab: {message}\n".encode())
    nowhere = os.open(os.devnull, os.O_WRONLY)
    for stream in (1, 2):
        os.dup2(nowhere, stream)
    with contextlib.suppress(Exception):
        last()
    os._exit(code)


def _look(ended: Callable[[], str], lost: Callable[[str], None], over: threading.Event) -> None:
    while not over.wait(_LOOK):
        daemon = ended()
        if daemon and not over.is_set():
            lost(
                f"the Ray cluster is lost (its process {daemon} has ended); records and"
                " checkpoints are whole, run the same command again to continue"
            )
            return


def _watch(
    addresses: Mapping[Address, float], lost: Callable[[str], None], over: threading.Event
) -> None:
    heard = dict.fromkeys(addresses, time.monotonic())
    before = time.monotonic()
    while not over.wait(_EVERY):
        late = max(time.monotonic() - before - 3 * _EVERY, 0)  # this process was held up itself
        before = time.monotonic()
        for address, patience in addresses.items():
            heard[address] = time.monotonic() if _answers(address) else heard[address] + late
            if time.monotonic() - heard[address] > patience and not over.is_set():
                lost(
                    f"the Ray cluster is lost ({address[0]}:{address[1]} has not answered for"
                    f" {patience:.0f} s); records and checkpoints are whole, run the same command"
                    " again with another cluster to continue"
                )
                return


def _answers(address: Address) -> bool:
    try:
        with socket.create_connection(address, timeout=_EVERY):
            return True
    except OSError:
        return False
