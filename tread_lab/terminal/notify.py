"""Notifications of how a sweep has ended: a URL through apprise, or a command that gets JSON."""

from __future__ import annotations

import contextlib
import json
import logging
import os
import platform
import re
import shlex
import shutil
import subprocess
from collections import Counter
from collections.abc import Callable
from importlib.util import find_spec
from typing import Any

from tread_lab.records.lab import Lab
from tread_lab.records.status import RunState
from tread_lab.specs.errors import UserError, first_line
from tread_lab.specs.units import counts_text
from tread_lab.sweep.execution.cluster_heartbeat import farewells
from tread_lab.terminal.console import say
from tread_lab.terminal.status import sweep_counts

VARIABLE = "TREAD_LAB_NOTIFY"
_SECONDS = 10.0  # for a command; Ray ends a driver whose cluster is lost soon after
_EVENTS = {0: "ended", 3: "waits", 130: "waits"}  # exit code -> event; any other: failed


def notification_target(given: str | None) -> str | None:
    """Return the URL or command that is told of a sweep: as given, else by TREAD_LAB_NOTIFY.

    Raises:
        UserError: it could never be told; no more is said of it than its scheme or first word.
    """
    target = given or os.environ.get(VARIABLE)
    if not target:
        return None
    scheme = _scheme(target)
    if scheme is None:
        words = _words(target) or [""]
        if shutil.which(words[0]) is None:
            raise UserError(f"--notify: no command {words[0]!r} on this machine, and no URL")
    elif find_spec("apprise") is None:
        raise UserError(f"--notify: {scheme}:// needs apprise: `pip install 'tread-lab[notify]'`")
    elif not _apprise(target):
        raise UserError(f"--notify: apprise makes nothing of this {scheme}:// URL; see its README")
    return target


def notified(target: str | None, lab: Lab, sweep: str, drive: Callable[[], int]) -> int:
    """Return what `drive` returns, and tell `target` how it went; that never harms it."""
    if target is None:
        return drive()

    def tell(message: str, code: int) -> None:
        try:
            _send(target, _facts(lab, sweep, message, code))
        except Exception as error:  # whatever it is, the sweep has gone its way
            with contextlib.suppress(Exception):
                kind = type(error).__name__
                say(f"the notification of {sweep} failed ({kind}); the sweep is as it was")

    farewells.append(tell)
    try:
        code = drive()
    except BaseException as error:
        code = 130 if isinstance(error, KeyboardInterrupt) else getattr(error, "exit_code", 1)
        tell(first_line(error), code)
        raise
    finally:
        farewells.remove(tell)
    tell("", code)
    return code


def _facts(lab: Lab, sweep: str, message: str, code: int) -> dict[str, Any]:
    """Return what is told; a sweep that has come to its end with runs or cells left waits."""
    counts, to_suggest = Counter[RunState](), 0
    with contextlib.suppress(UserError, OSError):
        counts, to_suggest = sweep_counts(lab, sweep), lab.sweep(sweep).plan().to_suggest
    waits = code == 0 and (to_suggest or not all(state.ended for state in counts))
    return {
        "sweep": sweep,
        "event": "waits" if waits else _EVENTS.get(code, "failed"),
        "exit_code": code,
        "message": message,
        "runs": {str(state): count for state, count in counts.items()},
        "lab": str(lab.root),
        "host": platform.node(),
    }


def _send(target: str, facts: dict[str, Any]) -> None:
    """Tell a URL or a command.

    Raises:
        RuntimeError, OSError, subprocess.SubprocessError: it was not told.
    """
    if _scheme(target) is None:
        text = json.dumps(facts)
        subprocess.run(_words(target), input=text, text=True, timeout=_SECONDS, check=True)
        return
    runs = counts_text(Counter(facts["runs"]))
    body = "\n".join(filter(None, [facts["message"], runs, facts["lab"]]))
    title = f"tread-lab: {facts['sweep']} {facts['event']}"
    if not _apprise(target).notify(title=title, body=body):
        raise RuntimeError("not taken")


def _apprise(url: str) -> Any:
    """Return apprise with this URL, false if it makes nothing of it; it logs nothing."""
    import apprise

    log = logging.getLogger("apprise")
    log.addHandler(logging.NullHandler())
    log.propagate = False
    service = apprise.Apprise()
    service.add(url)
    return service


def _scheme(target: str) -> str | None:
    found = re.match(r"([a-z][a-z0-9+.-]*)://", target, re.IGNORECASE)
    return found[1] if found else None


def _words(command: str) -> list[str]:
    try:
        return shlex.split(command)
    except ValueError as error:
        raise UserError(f"--notify: the command has an open quote ({error})") from None
