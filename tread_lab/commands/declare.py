"""How a command declares what it takes: a field for each option, which argparse reads."""

from __future__ import annotations

import argparse
import dataclasses
import inspect
import types
import typing
from collections.abc import Callable, Container, Iterator
from pathlib import Path
from typing import Any, Literal


def option(text: str | None = None, default: Any = None, **settings: Any) -> Any:
    """Declare an option of a command.

    Args:
        settings: of `add_argument`; `flag` where its name is not that of the field.
    """
    metadata = {"help": text, **settings}
    if default == []:
        return dataclasses.field(default_factory=list, metadata=metadata)
    return dataclasses.field(default=default, metadata=metadata)


def argument(text: str | None = None, **settings: Any) -> Any:
    """Declare a positional argument; one that may be left out says its `nargs`."""
    metadata = {"help": text, "positional": True, **settings}
    if settings.get("nargs") == "?":
        return dataclasses.field(default=None, metadata=metadata)
    if settings.get("nargs") == "*":
        return dataclasses.field(default_factory=list, metadata=metadata)
    return dataclasses.field(metadata=metadata)


def not_negative(text: str) -> float:
    """Read a number of seconds or of devices."""
    value = float(text)
    if not 0 <= value < float("inf"):
        raise argparse.ArgumentTypeError(f"{text} is not a finite number of at least 0")
    return value


def positive(text: str) -> int:
    """Read a count."""
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError(f"{value} is not positive")
    return value


def count(text: str) -> int:
    """Read a count that may be 0."""
    return 0 if text == "0" else positive(text)


def arguments(options: type) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the name of each argument of a command, and what `add_argument` takes beside it."""
    hints = typing.get_type_hints(options)
    for field in sorted(dataclasses.fields(options), key=lambda field: _place(options, field)):
        settings: dict[str, Any] = dict(field.metadata)
        positional = settings.pop("positional", False)
        name = settings.pop("flag", "--" + field.name.replace("_", "-"))
        if not positional:
            settings["dest"] = field.name
        if field.default is not dataclasses.MISSING:
            settings["default"] = field.default
        elif field.default_factory is not dataclasses.MISSING:
            settings["default"] = field.default_factory()
        yield field.name if positional else name, settings | _typed(hints[field.name], settings)


def words_of(options: object, kind: type, *, without: Container[str] = ()) -> list[str]:
    """Return the flags that ask for these options of a command's kind, without defaults."""
    words = []
    for flag, settings in arguments(kind):
        if not flag.startswith("-") or flag in without:
            continue
        value = getattr(options, settings["dest"])
        if value is True:
            words.append(flag)
        elif value != settings["default"]:
            words += [f"{flag}={v}" for v in (value if isinstance(value, list) else [value])]
    return words


def _place(options: type, field: dataclasses.Field[Any]) -> tuple[bool, int]:
    """Return what sorts arguments: a list of words last; own options before shared ones."""
    classes = enumerate(options.__mro__)
    depth = next(k for k, cls in classes if field.name in inspect.get_annotations(cls))
    return field.metadata.get("nargs") == "*", -depth if "positional" in field.metadata else depth


def _typed(hint: Any, settings: dict[str, Any]) -> dict[str, Any]:
    """Return what the type of a field says of its argument."""
    inner = [part for part in typing.get_args(hint) if part is not types.NoneType]
    if typing.get_origin(hint) is types.UnionType:
        (hint,) = inner
    if hint is bool:
        return {"action": "store_true"}
    if typing.get_origin(hint) is Literal:
        return {"choices": typing.get_args(hint)}
    read: dict[Any, Callable[[str], Any]] = {int: positive, float: float, Path: Path}
    return {"type": read[hint]} if hint in read and "type" not in settings else {}
