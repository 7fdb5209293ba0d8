"""The attempts at a run, append-only: who tried, when, where, with what code, how it ended."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any

from tread_lab.records.exit_reasons import EXIT_REASONS
from tread_lab.records.lines import append_line, read_lines


@dataclass(frozen=True, kw_only=True)
class Attempt:
    """One try at a run.

    Attributes:
        n: 1, 2, ...; the order of attempts, whatever the clocks say.
        driver: which session of a driver started it.
        node, host, pid: where it ran; `node` is Ray's id of the node, else the host.
        time: when it began, in seconds.
        whole: whether it had a device to itself.
        packed: most runs that shared its device.
        devices: how many it had.
        made_with: digests of the code, data and weights that decide its results, by name.
        phase: `train` or `evaluate`, where it was when it ended.
        ended: a key of `EXIT_REASONS`; empty while the attempt goes on, or if its process has died.
        forgiven: the user has asked since to try the run again.
    """

    n: int
    driver: str = ""
    node: str = ""
    host: str = ""
    pid: int = 0
    time: float = 0.0
    whole: bool = True
    packed: int = 1
    devices: int = 1
    made_with: Mapping[str, str] = field(default_factory=dict)
    phase: str = "train"
    ended: str = ""
    reason: str = ""
    traceback: str = ""
    forgiven: bool = False


class Attempts:
    """The attempts at one run, in the file `path`; the last line about an attempt counts."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def read(self) -> list[Attempt]:
        """Return all attempts in order."""
        return attempts_of(read_lines(self.path))

    def open(self, **facts: Any) -> Attempt:
        """Begin the next attempt."""
        n = max((attempt.n for attempt in self.read()), default=0) + 1
        attempt = Attempt(n=n, time=time.time(), **facts)
        append_line(self.path, {"event": "opened", **vars(attempt)})
        return attempt

    def close(self, attempt: Attempt, ended: str, **facts: Any) -> Attempt:
        """Record how an attempt ended."""
        assert ended in EXIT_REASONS, ended
        append_line(self.path, {"event": "closed", "n": attempt.n, "ended": ended, **facts})
        return replace(attempt, ended=ended, **facts)

    def reset_retries(self) -> None:
        """Let no earlier attempt count against the run any more; all stay in the record."""
        append_line(self.path, {"event": "forgiven", "time": time.time()})


def attempts_of(lines: Iterable[dict[str, Any]]) -> list[Attempt]:
    """Return the attempts that the lines of a record describe."""
    names = {field.name for field in fields(Attempt)}
    attempts: dict[int, Attempt] = {}
    for line in lines:
        if line["event"] == "forgiven":
            attempts = {n: replace(one, forgiven=True) for n, one in attempts.items()}
            continue
        facts = {key: value for key, value in line.items() if key in names}
        attempt = attempts.get(facts["n"], Attempt(n=facts["n"]))
        attempts[attempt.n] = replace(attempt, **facts)
    return [attempts[n] for n in sorted(attempts)]
