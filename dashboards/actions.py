"""What a page may do to a sweep or a run: stop, run again, note, tag; and which page may."""

from __future__ import annotations

import hmac
import json
import os
import secrets
import shlex
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

from tread_lab.records.lab import Lab
from tread_lab.records.locks import Busy
from tread_lab.records.run_folder import RunFolder
from tread_lab.records.sweep_folder import SweepFolder
from tread_lab.specs.errors import UserError, lookup

Folder = RunFolder | SweepFolder
TOKEN = "X-Tread-Lab-Token"
LONGEST = 20_000  # bytes of a request
AGAIN = {  # which runs are run again -> what the sweep command is given
    "open": (),
    "failed": ("--retry-failed",),
}
ENDED_WELL = (0, 1, 130)  # exit codes that the states of the runs explain


class Refused(UserError):
    """A request that is not answered, with its HTTP status."""

    def __init__(self, status: int, line: str) -> None:
        super().__init__(line)
        self.status = status


@dataclass(frozen=True)
class Guard:
    """Tells requests of the server's own page from all others.

    Attributes:
        token: of this start of the server, in the address that it prints and in no answer, so
            that other users of the machine can read and not act; "": no page may act.
        hosts: the names by which the server is asked; "*" stands for any address in numbers.
    """

    hosts: tuple[str, ...]
    token: str = field(default_factory=lambda: secrets.token_urlsafe(32), repr=False)

    def check(self, headers: Mapping[str, str]) -> None:
        """Raises Refused: the request is not of the server's own page."""
        for refuses, status, line in CHECKS:
            if refuses(self, headers):
                raise Refused(status, line)

    def foreign(self, headers: Mapping[str, str]) -> bool:
        """Return whether a page of another origin asks, or a name that may be anybody's."""
        host, origin = headers.get("host", ""), headers.get("origin", "")
        name = host.rpartition(":")[0] if host.rpartition(":")[2].isdigit() else host
        numbers = name.replace(".", "").isdigit() or name.startswith("[")
        known = name in self.hosts or ("*" in self.hosts and numbers)
        site = headers.get("sec-fetch-site", "same-origin")
        return not known or urlsplit(origin).netloc != host or site != "same-origin"

    def unknown(self, headers: Mapping[str, str]) -> bool:
        """Return whether a request has not this server's token."""
        return not hmac.compare_digest(headers.get(TOKEN, "").encode(), self.token.encode())


CHECKS: tuple[tuple[Callable[[Guard, Mapping[str, str]], bool], int, str], ...] = (
    (
        lambda guard, _: not guard.token,
        403,
        "other machines reach this page, so that it shows and does nothing;"
        " `tread-lab dashboard --act` lets it act",
    ),
    (Guard.foreign, 403, "the request is not of a page of this server"),
    (Guard.unknown, 403, "open the address that this start of the dashboard printed"),
    (
        lambda _, headers: headers.get("content-type", "").partition(";")[0] != "application/json",
        415,
        "an action is sent as application/json",
    ),
    (
        lambda _, headers: not 0 < int(headers.get("content-length") or 0) <= LONGEST,
        413,
        f"an action has 1 to {LONGEST:,} bytes, and says how many",
    ),
)


def asked(body: bytes) -> dict[str, str]:
    """Return what a request asks for: `{action, name, text}`.

    Raises:
        Refused: it is nothing of the kind.
    """
    try:
        tree: Any = json.loads(body)
    except (ValueError, RecursionError):
        tree = None
    texts = isinstance(tree, dict) and all(isinstance(value, str) for value in tree.values())
    if not texts or not {"action", "name"} <= tree.keys() <= {"action", "name", "text"}:
        raise Refused(400, 'write {"action": ..., "name": ..., "text": ...}')
    return dict(tree)


class Drivers:
    """The sweeps that the page has run again: each in a process of its own, which outlives it."""

    def __init__(self, lab: Lab) -> None:
        self.lab = lab
        self._lock = threading.Lock()
        self._started: dict[str, subprocess.Popen[bytes]] = {}

    def run_again(self, sweep: SweepFolder, which: str) -> str:
        """Start the command of a sweep's last driver anew; return what follows.

        Raises:
            UserError: a driver is at work, or the last one ran elsewhere.
        """
        flags = lookup(AGAIN, which, "run again")
        with self._lock:
            if self.driven(sweep):
                raise Busy(f"sweep {sweep.name} is running; stop it first, or wait for its end")
            command = sweep.command()
            here = os.uname().nodename
            if command is None or command.host != here:
                where = f"on {command.host}" if command else "in a terminal"
                raise UserError(f"run it {where}: {again(sweep, *flags)}")
            words = [sys.executable, "-P", "-m", "tread_lab", *command.words, *flags]
            with sweep.driver_log.open("ab") as log:
                self._started[sweep.name] = subprocess.Popen(
                    words,
                    cwd=command.folder,
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=subprocess.STDOUT,
                    start_new_session=True,
                )
            pid = self._started[sweep.name].pid
        return f"sweep {sweep.name}: process {pid} runs it again; it writes {sweep.driver_log}"

    def driven(self, sweep: SweepFolder) -> bool:
        """Return whether a driver works at a sweep, or was started here and is about to."""
        started = self._started.get(sweep.name)
        return sweep.driven or (started is not None and started.poll() is None)

    def failure(self, sweep: SweepFolder) -> str:
        """Return why the driver that was started here last has ended; "" if all is well."""
        started = self._started.get(sweep.name)
        if started is None or started.poll() in (None, *ENDED_WELL):
            return ""
        tail = sweep.driver_log.read_bytes()[-LONGEST:].decode(errors="replace")
        last = next((line for line in reversed(tail.split("\n")) if line.strip()), "no word")
        return f"the driver that was started here has ended: {last.removeprefix('tread-lab: ')}"


def again(sweep: SweepFolder, *flags: str) -> str:
    """Return the command line that runs a sweep again."""
    if (command := sweep.command()) is None:
        file = f"{sweep.name}.yaml"
        return shlex.join(["tread-lab", "sweep", file, "--name", sweep.name, *flags])
    words = shlex.join(["tread-lab", *command.words, *flags])
    return f"cd {shlex.quote(command.folder)} && {words}"


def _run_again(drivers: Drivers, folder: Folder, text: str) -> str:
    if not isinstance(folder, SweepFolder):
        raise UserError(f"run {folder.name}: its sweep is run again, not a run alone")
    return drivers.run_again(folder, text)


def _stop(_: Drivers, folder: Folder, text: str) -> str:
    if not isinstance(folder, SweepFolder):
        raise UserError(f"run {folder.name}: its sweep is stopped, not a run alone")
    return folder.request_stop(text)


def _note(_: Drivers, folder: Folder, text: str) -> str:
    folder.remarks.add_note(text)
    return "the note is kept"


def _tagging(*, remove: bool) -> Callable[[Drivers, Folder, str], str]:
    def change(_: Drivers, folder: Folder, text: str) -> str:
        folder.remarks.add_tags(text.split(), remove=remove)
        return f"tags: {', '.join(folder.remarks.tags) or 'none'}"

    return change


# Each does what the command of that name does; `again` is `tread-lab sweep` as it was run last.
ACTIONS: dict[str, Callable[[Drivers, Folder, str], str]] = {
    "stop": _stop,
    "again": _run_again,
    "note": _note,
    "tag": _tagging(remove=False),
    "untag": _tagging(remove=True),
}


def act(drivers: Drivers, action: str, name: str, text: str = "") -> str:
    """Do what a page asks of a sweep or a run; return what follows, in one line.

    Raises:
        UserError: why it is not done.
    """
    do = lookup(ACTIONS, action, "action")
    return do(drivers, drivers.lab.known(name), text)
