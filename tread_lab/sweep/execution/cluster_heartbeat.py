"""Driver-side monitor of the Ray cluster: ends the driver with one line once it is lost."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager
from pathlib import Path

from tread_lab.specs.errors import Unavailable

Address = tuple[str, int]

_EVERY = 2.0  # seconds between two attempts to connect, and for an answer
PATIENCE = 30.0  # seconds without an answer of another machine, which may only be held up
OWN_PATIENCE = 5.0  # of this machine's daemon; Ray ends the driver without a word after about 12


def monitor_addresses(
    addresses: Mapping[Address, float], lost: Callable[[str], None]
) -> AbstractContextManager[None]:
    """Within the block, call `lost` once an address has not answered for its seconds.

    Ray's own calls wait for ever then, so a thread looks, and `lost` has to end the process.
    """
    answered = dict.fromkeys(addresses, time.monotonic())
    looked = time.monotonic()

    def lost_address() -> str:
        nonlocal looked
        held_up = max(time.monotonic() - looked - 3 * _EVERY, 0)  # this process itself
        looked = time.monotonic()
        for address, patience in addresses.items():
            answered[address] = (
                time.monotonic() if answers(address) else answered[address] + held_up
            )
            if time.monotonic() - answered[address] > patience:
                host, port = address
                return (
                    f"the Ray cluster is lost ({host}:{port} has not answered for {patience:.0f}"
                    " s); records and checkpoints are whole, run the same command again with"
                    " another cluster to continue"
                )
        return ""

    return monitor(lost_address, _EVERY, lost)


@contextlib.contextmanager
def monitor(
    message: Callable[[], str], seconds: float, lost: Callable[[str], None]
) -> Iterator[None]:
    """Within the block, ask for a message every few seconds; pass the first one that is not empty
    to `lost`."""
    over = threading.Event()

    def watch() -> None:
        while not over.wait(seconds):
            if (text := message()) and not over.is_set():
                lost(text)
                return

    threading.Thread(target=watch, name="cluster-heartbeat", daemon=True).start()
    try:
        yield
    finally:
        over.set()


def leave(message: str, *, code: int = Unavailable.exit_code) -> None:
    """End this process and those that it has started at once with one line, after which nothing
    that Ray prints is seen; what is on record is whole."""
    cursor = "\x1b[?25h" if sys.stderr.isatty() else ""  # a live display may have hidden it
    os.write(2, f"{cursor}\ntread-lab: {message}\n".encode())
    nowhere = os.open(os.devnull, os.O_WRONLY)
    for stream in (1, 2):
        os.dup2(nowhere, stream)
    for pid in descendants(os.getpid()):
        kill(pid)
    os._exit(code)


def descendants(pid: int) -> list[int]:
    """Return the processes that `pid` has started, those that these have, and so on.

    Each stands before its own: a shell that is killed after its child says `Killed` first.
    """
    children: dict[int, list[int]] = {}
    for path in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            parent = int((path / "stat").read_text().rpartition(")")[2].split()[1])
            children.setdefault(parent, []).append(int(path.name))
    found = [pid]
    for parent in found:
        found += children.get(parent, [])
    return found[1:]


def command_line(pid: int) -> bytes:
    """Return the command line of a process, empty if it has ended."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""


def kill(pid: int) -> None:
    """Kill a process, unless it has ended."""
    with contextlib.suppress(OSError):
        os.kill(pid, signal.SIGKILL)


def answers(address: Address, *, within: float = 0) -> bool:
    """Return whether something takes a connection at an address within so many seconds."""
    until = time.monotonic() + within
    while not _connects(address):
        if time.monotonic() >= until:
            return False
        time.sleep(_EVERY / 4)
    return True


def _connects(address: Address) -> bool:
    try:
        with socket.create_connection(address, timeout=_EVERY):
            return True
    except OSError:
        return False
