"""What a driver does to itself in a test: die at an exact place, or wait there."""

from __future__ import annotations

import importlib
import itertools
import os
import resource
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any


def die(place: str, *, nth: int = 1, after: bool = False) -> None:
    """SIGKILL this process at the nth call of `module:Class.method`, before it or after it."""
    count = itertools.count(1)

    def around(original: Callable[..., Any], *args: Any, **options: Any) -> Any:
        number = next(count)
        if number == nth and not after:
            os.kill(os.getpid(), signal.SIGKILL)
        found = original(*args, **options)
        if number == nth:
            os.kill(os.getpid(), signal.SIGKILL)
        return found

    wrap(place, around)


def wrap(place: str, around: Callable[..., Any]) -> None:
    """Put `around(original, ...)` in the place of `module:Class.method`."""
    module, _, path = place.partition(":")
    *owners, name = path.split(".")
    owner: Any = importlib.import_module(module)
    for part in owners:
        owner = getattr(owner, part)
    original = getattr(owner, name)

    def replaced(*args: Any, **options: Any) -> Any:
        return around(original, *args, **options)

    setattr(owner, name, replaced)


def gate(place: str, *, path: str, nth: int = 1) -> None:
    """Wait before the nth call of `place` until the file `path` is there; `path.waits` says so."""
    count = itertools.count(1)

    def around(original: Callable[..., Any], *args: Any, **options: Any) -> Any:
        if next(count) == nth:
            Path(f"{path}.waits").touch()
            while not Path(path).exists():
                time.sleep(0.005)
        return original(*args, **options)

    wrap(place, around)


def without_extras() -> None:
    """No figures: most faults are not about them."""
    wrap("tread_lab.analysis.figures.catalogue:write_figures", lambda *args, **options: [])


def eager_sync() -> None:
    """MLflow follows at once, and a lost server is asked often."""
    from tread_lab.tracking import live as follow

    follow.EVERY = 0.3


def limit_memory(gigabytes: float) -> None:
    """Let this process have that much more memory than it has now."""
    now = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    limit = now + int(gigabytes * 1e9)
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
