"""Registries: one table from name to entry per kind, which modules of your own may add to."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, TypeVar

from tread_lab.config.errors import UserError, first_line, suggest

Entry = TypeVar("Entry")
Added = TypeVar("Added")


class Registry(dict[str, Entry]):
    """The names of one kind, each with its entry.

    Args:
        noun: what an entry is, for errors.
        built_in: the entries of this package.
        facts: of a table of code, the table of what specs need of the same names.
    """

    def __init__(
        self, noun: str, built_in: Mapping[str, Entry], facts: Registry[Any] | None = None
    ) -> None:
        super().__init__(built_in)
        self.noun, self.built_in, self._facts = noun, dict(built_in), facts

    def __call__(self, name: str) -> None:
        """Refuse a name that no entry has, as the type of a field declares it."""
        if name not in self:
            raise UserError(f"unknown {self.noun} {name!r}{suggest(name, self)}")

    def register(self, name: str, facts: object = None) -> Callable[[Added], Added]:
        """Return a decorator that adds what it decorates under a name.

        Args:
            facts: what specs need of it, where the kind has such.

        Raises:
            UserError: the name is built in.
        """
        if name in self.built_in:
            raise UserError(f"{self.noun}: {name!r} is built in; choose another name")

        def add(entry: Any) -> Any:
            if self._facts is not None:
                self._facts.register(name)(facts)
            self[name] = entry
            return entry

        return add


def import_plugins(names: Iterable[str]) -> None:
    """Import modules that register entries, from the current folder or where Python finds them.

    Raises:
        UserError: one cannot be imported; names it.
    """
    for name in names:
        if (here := str(Path.cwd())) not in sys.path:
            sys.path.append(here)
        try:
            importlib.import_module(name)
        except Exception as error:
            reason = f"{type(error).__name__}: {first_line(error)}"
            raise UserError(f"plugins: cannot import {name!r}: {reason}") from error
