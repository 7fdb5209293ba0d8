"""What the command line says in one line instead of a traceback: what, where and what to do."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping
from typing import TypeVar

T = TypeVar("T")

_LONGEST = 1_000  # characters of the line


class UserError(ValueError):
    """A mistake in what the user wrote; the command line prints it as one line and exits with 2."""

    def __init__(self, message: str) -> None:
        line = "".join(c if c.isprintable() else repr(c)[1:-1] for c in str(message))
        super().__init__(line if len(line) <= _LONGEST else f"{line[:_LONGEST]}...")

    exit_code = 2

    def _render_traceback_(self) -> list[str]:
        """Return what a notebook shows: the one line."""
        return [str(self)]

    def at(self, path: str) -> UserError:
        """The same mistake with the dotted path `path` in front of it."""
        return UserError(f"{path}: {self}" if path else str(self))


class NotFinite(UserError):
    """A network gives what is no number, and would give it again."""


class Exploded(NotFinite):
    """A trained network predicts worse than zero: finite, but no result."""


class Unavailable(UserError):
    """What the work stands on is gone (room on the disk, the cluster); the same command goes on
    when it is back."""

    exit_code = 3


def first_line(error: BaseException) -> str:
    """Return the first line of an error's message; the name of its class if it has no message."""
    return (str(error).strip().splitlines() or [type(error).__name__])[0]


def lookup(table: Mapping[str, T], name: str, what: str) -> T:
    """Return the entry of `name`.

    Raises:
        UserError: the table has none; says what was looked up and suggests a near miss.
    """
    if name not in table:
        raise UserError(f"{what}: unknown {name!r}{suggest(name, table)}")
    return table[name]


def check_positive(spec: object, *names: str) -> None:
    """Refuse fields that are not above 0; `None` is none of them."""
    for name in names:
        value = getattr(spec, name)
        if value is not None and not value > 0:
            raise UserError(f"{name}: must be positive, got {value}")


def check_not_negative(spec: object, *names: str) -> None:
    """Refuse fields below 0; `None` is none of them."""
    for name in names:
        value = getattr(spec, name)
        if value is not None and value < 0:
            raise UserError(f"{name}: must not be negative, got {value}")


def suggest(name: str, known: Iterable[str]) -> str:
    """Return `, did you mean 'x'?` for a near miss, else the list of valid names."""
    known = sorted(known)
    near = difflib.get_close_matches(str(name), known, n=1)
    if near:
        return f", did you mean {near[0]!r}?"
    return f" (known: {', '.join(known)})" if known else ""


def shown(value: object, *, longest: int = 60) -> str:
    """Return a value as a message quotes it, at most so many characters long."""
    text = "nothing" if value is None else repr(value)
    return text if len(text) <= longest else f"{text[: longest - 3]}..."
