"""Strict decoding of plain trees into frozen dataclasses, with dotted paths and suggestions."""

from __future__ import annotations

import dataclasses
import functools
import math
import types
import typing
from collections.abc import Mapping
from typing import Annotated, Any, Literal, TypeVar, Union, get_args, get_origin

from tread_lab.specs.errors import UserError, suggest

T = TypeVar("T")


def decode(cls: type[T], tree: Any, path: str = "") -> T:
    """Build the frozen dataclass `cls` from a plain tree of dicts, lists and scalars.

    A dataclass may accept a shorthand by a static method `from_shorthand(value) -> dict`, called
    for anything that is not a mapping.

    Raises:
        UserError: an unknown key, a missing key or a value of the wrong type, with its dotted path.
    """
    if isinstance(tree, cls):
        return tree
    if not isinstance(tree, Mapping):
        shorthand = getattr(cls, "from_shorthand", None)
        if shorthand is None or tree is None or isinstance(tree, list | tuple):
            raise UserError(f"expected a mapping, got {_show(tree)}").at(path)
        try:
            tree = shorthand(tree)
        except UserError as error:
            raise error.at(path) from None
    fields = _fields(typing.cast(Any, cls))
    for key in tree:
        if key not in fields:
            raise UserError(f"unknown key {key!r}{suggest(key, fields)}").at(path)
    values = {}
    for name, (hint, required) in fields.items():
        if name in tree:
            values[name] = _value(hint, tree[name], _join(path, name))
        elif required:
            raise UserError(f"missing key {name!r}").at(path)
    try:
        return cls(**values)
    except UserError as error:
        raise error.at(path) from None


def decode_field(cls: type, name: str, value: Any) -> Any:
    """One field of the frozen dataclass `cls`, decoded as `decode` would.

    Raises:
        UserError: as `decode`, with the field's name in front.
    """
    return _value(_fields(typing.cast(Any, cls))[name][0], value, name)


def added(default: Any) -> Any:
    """Declare a field that an earlier version did not have, with the value that it stood for.

    At that value the field is left out of trees and signatures, so that labs of the earlier
    version keep the names of their runs. Where the old behaviour is gone, use a plain field.
    """
    return dataclasses.field(default=default, metadata={"added": True})


@functools.cache
def defaults_of_added(cls: Any) -> dict[str, Any]:
    """The default of every field of `cls` that was declared by `added`."""
    return {f.name: f.default for f in dataclasses.fields(cls) if f.metadata.get("added")}


def encode(value: Any) -> Any:
    """Return the plain tree of a dataclass: dicts, lists and scalars, in field order."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        silent = defaults_of_added(type(value))
        items = ((f.name, getattr(value, f.name)) for f in dataclasses.fields(value))
        return {k: encode(v) for k, v in items if k not in silent or v != silent[k]}
    if isinstance(value, tuple | list):
        return [encode(item) for item in value]
    if isinstance(value, Mapping):
        return {key: encode(item) for key, item in value.items()}
    return value


@functools.cache
def _fields(cls: Any) -> dict[str, tuple[Any, bool]]:
    """Field name -> (type hint, whether it must be given)."""
    hints = typing.get_type_hints(cls, include_extras=True)
    missing = dataclasses.MISSING
    return {
        f.name: (hints[f.name], f.default is missing and f.default_factory is missing)
        for f in dataclasses.fields(cls)
    }


def _value(hint: Any, value: Any, path: str) -> Any:
    """One value decoded after its type hint."""
    origin = get_origin(hint)
    if origin in (Union, types.UnionType):
        return _union(get_args(hint), value, path)
    if origin is Literal:
        choices = get_args(hint)
        if value in choices and type(value) in {type(c) for c in choices}:
            return value
        if value is False and "off" in choices:  # YAML reads a bare `off` as false
            return "off"
        raise UserError(f"{_show(value)} is not one of {_names(choices)}").at(path)
    if origin is Annotated:
        _, kind = get_args(hint)
        if _scalar(str, value, path) not in kind:
            raise UserError(f"unknown {value!r}{suggest(value, kind)}").at(path)
        return value
    if origin is tuple:
        return _tuple(get_args(hint), value, path)
    if origin is Mapping or hint is Mapping or origin is dict:
        if not isinstance(value, Mapping):
            raise UserError(f"expected a mapping, got {_show(value)}").at(path)
        return dict(value)
    if dataclasses.is_dataclass(hint):
        return decode(typing.cast(type, hint), value, path)
    if hint is Any:
        return value
    return _scalar(hint, value, path)


def _union(options: tuple[Any, ...], value: Any, path: str) -> Any:
    if value is None and type(None) in options:
        return None
    options = tuple(option for option in options if option is not type(None))
    if len(options) == 1:
        return _value(options[0], value, path)
    tagged = _tagged(options)
    if tagged and isinstance(value, Mapping):
        default = next(iter(tagged))
        kind = value.get("kind", default)
        if not isinstance(kind, str) or kind not in tagged:
            raise UserError(f"unknown kind {kind!r}{suggest(str(kind), map(str, tagged))}").at(path)
        return decode(tagged[kind], value, path)
    if tagged and isinstance(value, tuple(tagged.values())):
        return value
    if tagged and isinstance(value, str):
        if value in tagged:
            return decode(tagged[value], {"kind": value}, path)
        if len(tagged) == len(options):
            raise UserError(f"unknown kind {value!r}{suggest(value, map(str, tagged))}").at(path)
    lists = [option for option in options if get_origin(option) is tuple]
    if isinstance(value, list | tuple) and len(lists) == 1:
        return _value(lists[0], value, path)
    for option in sorted(options, key=lambda o: 0 if type(value) is o else 1):
        try:
            return _value(option, value, path)
        except UserError:
            continue
    names = " or ".join(getattr(o, "__name__", str(o)) for o in options)
    raise UserError(f"expected {names}, got {_show(value)}").at(path)


@functools.cache
def _tagged(options: tuple[Any, ...]) -> dict[str, Any]:
    """The members of a tagged union by their tags."""
    return {_kind(option): option for option in options if dataclasses.is_dataclass(option)}


def _kind(cls: Any) -> str:
    """The tag of one member of a tagged union: the default of its field `kind`."""
    return str(next(f.default for f in dataclasses.fields(cls) if f.name == "kind"))


def _tuple(args: tuple[Any, ...], value: Any, path: str) -> tuple[Any, ...]:
    if not isinstance(value, list | tuple):
        raise UserError(f"expected a list, got {_show(value)}").at(path)
    if len(args) == 2 and args[1] is Ellipsis:
        return tuple(_value(args[0], item, f"{path}[{k}]") for k, item in enumerate(value))
    if len(value) != len(args):
        raise UserError(f"expected {len(args)} values, got {len(value)}").at(path)
    return tuple(_value(a, v, f"{path}[{k}]") for k, (a, v) in enumerate(zip(args, value)))


def _scalar(hint: type, value: Any, path: str) -> Any:
    if hint is float and type(value) in (int, float):
        if not math.isfinite(value):
            raise UserError(f"expected a finite number, got {value}").at(path)
        return float(value)
    if hint is int and type(value) is float and value.is_integer():
        return int(value)
    if type(value) is hint:
        return value
    names = {int: "a whole number", float: "a number", str: "a text", bool: "true or false"}
    raise UserError(f"expected {names.get(hint, hint.__name__)}, got {_show(value)}").at(path)


def _names(choices: tuple[Any, ...]) -> str:
    return ", ".join(map(str, choices))


def _show(value: Any) -> str:
    if value is None:
        return "nothing"
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."


def _join(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name
