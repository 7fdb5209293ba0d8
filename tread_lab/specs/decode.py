"""Strict decoding of plain trees into frozen dataclasses, with dotted paths and suggestions."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import math
import types
import typing
from collections.abc import Callable, Mapping
from typing import Annotated, Any, Literal, TypeVar, Union, get_args, get_origin

from tread_lab.specs.errors import UserError, shown, suggest
from tread_lab.specs.systems import Variants

T = TypeVar("T")


def decode(cls: type[T], tree: Any, path: str = "") -> T:
    """Build the frozen dataclass `cls` from a plain tree of dicts, lists and scalars.

    A dataclass may accept a shorthand by a static method `from_shorthand(value) -> dict`, called
    for a scalar in place of a mapping. A static method `before_decoding(tree)` is called first.
    Its `LACKING` says what to do where a key is missing.

    Raises:
        UserError: an unknown key, a missing key or a value of the wrong type, with its dotted path.
    """
    if isinstance(tree, cls):
        return tree
    fields = fields_of(typing.cast(Any, cls))
    prefix = f"{path}." if path else ""
    try:
        tree = _opened(cls, tree)
        for key in tree:
            if key not in fields:
                raise UserError(f"unknown key {key!r}{suggest(key, fields)}")
        for name, (_, required) in fields.items():
            if required and name not in tree:
                raise UserError(f"missing key {name!r}{getattr(cls, 'LACKING', '')}")
        if (prepare := getattr(cls, "before_decoding", None)) is not None:
            prepare(tree)
    except UserError as error:
        raise error.at(path) from None
    values = {name: _value(fields[name][0], tree[name], f"{prefix}{name}") for name in tree}
    try:
        return cls(**values)
    except UserError as error:
        raise error.at(path) from None


def settle(spec: object, **fields: Any) -> None:
    """Set fields of a frozen dataclass while it is made."""
    for name, value in fields.items():
        object.__setattr__(spec, name, value)


def decode_field(cls: type, name: str, value: Any) -> Any:
    """Decode one field of the frozen dataclass `cls`.

    Raises:
        UserError: as `decode`, with the field's name in front.
    """
    return _value(fields_of(cls)[name][0], value, name)


@functools.cache
def fields_of(cls: Any) -> dict[str, tuple[Any, bool]]:
    """Return field name -> (type hint, whether it must be given)."""
    hints = typing.get_type_hints(cls, include_extras=True)
    missing = dataclasses.MISSING
    return {
        f.name: (hints[f.name], f.default is missing and f.default_factory is missing)
        for f in dataclasses.fields(cls)
    }


def unhashed(default: Any) -> Any:
    """Declare a field of this machine alone, such as a folder: signatures leave it out."""
    return dataclasses.field(default=default, metadata={"unhashed": True})


def encode(value: Any, *, hashed: bool = False) -> Any:
    """Return the plain tree of a dataclass: dicts, lists and scalars, in field order.

    Args:
        hashed: whether to leave out what `unhashed` declares.
    """
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {
            field.name: encode(getattr(value, field.name), hashed=hashed)
            for field in dataclasses.fields(value)
            if not (hashed and field.metadata.get("unhashed"))
        }
    if isinstance(value, tuple | list):
        return [encode(item, hashed=hashed) for item in value]
    if isinstance(value, Mapping):
        return {key: encode(item, hashed=hashed) for key, item in value.items()}
    return value


def _opened(cls: Any, tree: Any) -> Mapping[str, Any]:
    """Return the mapping of a dataclass; a shorthand is written out."""
    if isinstance(tree, Mapping):
        return tree
    if tree is None or isinstance(tree, list | tuple) or not hasattr(cls, "from_shorthand"):
        raise UserError(f"expected a mapping, got {shown(tree)}")
    written: Mapping[str, Any] = cls.from_shorthand(tree)
    return written


def _value(hint: Any, value: Any, path: str) -> Any:
    form = get_origin(hint) or hint
    if form in _FORMS:
        return _FORMS[form](get_args(hint), value, path)
    if dataclasses.is_dataclass(hint):
        return decode(typing.cast(type, hint), value, path)
    return _scalar(hint, value, path)


def _literal(choices: tuple[Any, ...], value: Any, path: str) -> Any:
    if value not in choices or type(value) not in map(type, choices):
        raise UserError(f"{shown(value)} is not one of {', '.join(map(str, choices))}").at(path)
    return value


def _annotated(hint_and_kind: tuple[Any, ...], value: Any, path: str) -> Any:
    """Decode one of several classes, or a name of a registry."""
    hint, kind = hint_and_kind
    if isinstance(kind, Variants):
        none = value is None and type(None) in get_args(hint)
        return None if none else _variant(kind, value, path)
    name: str = _scalar(hint, value, path)
    if name not in kind:
        raise UserError(f"unknown {name!r}{suggest(name, kind)}").at(path)
    return name


def _variant(variants: Variants, value: Any, path: str) -> Any:
    classes = variants.classes
    if not classes:
        raise UserError(f"no system that joins a run by {variants.field!r} is here").at(path)
    if len(classes) > 1:
        return _tagged(classes, value, path)
    return _value(classes[0], value, path)


def _mapping(_: tuple[Any, ...], value: Any, path: str) -> dict[str, Any]:
    if not isinstance(value, Mapping):
        raise UserError(f"expected a mapping, got {shown(value)}").at(path)
    return dict(value)


def _tuple(hints: tuple[Any, ...], value: Any, path: str) -> tuple[Any, ...]:
    if not isinstance(value, list | tuple):
        raise UserError(f"expected a list, got {shown(value)}").at(path)
    if hints[-1] is Ellipsis:
        hints = hints[:1] * len(value)
    if len(value) != len(hints):
        raise UserError(f"expected {len(hints)} values, got {len(value)}").at(path)
    items = enumerate(zip(hints, value))
    return tuple(_value(hint, item, f"{path}[{k}]") for k, (hint, item) in items)


def _union(options: tuple[Any, ...], value: Any, path: str) -> Any:
    """Decode `X | None`, a union of dataclasses told apart by `kind`, or a union of other types."""
    if value is None and type(None) in options:
        return None
    options = tuple(option for option in options if option is not type(None))
    if len(options) == 1:
        return _value(options[0], value, path)
    if all(map(dataclasses.is_dataclass, options)):
        return _tagged(options, value, path)
    form = tuple if isinstance(value, list) else type(value)
    for option in options:
        if (get_origin(option) or option) is form:
            return _value(option, value, path)
    for option in options:
        with contextlib.suppress(UserError):
            return _value(option, value, path)
    forms = (get_origin(option) or option for option in options)
    names = " or ".join(_WORDS.get(form, form.__name__) for form in forms)
    raise UserError(f"expected {names}, got {shown(value)}").at(path)


def _tagged(options: tuple[Any, ...], value: Any, path: str) -> Any:
    """Decode one of several dataclasses by its `kind`, which may stand alone; the first without."""
    if isinstance(value, options):
        return value
    tree = {"kind": value} if isinstance(value, str) else value
    if not isinstance(tree, Mapping):
        raise UserError(f"expected a mapping or a kind, got {shown(value)}").at(path)
    kinds = {getattr(option, "kind", option.__name__): option for option in options}
    kind = tree.get("kind", next(iter(kinds)))
    if not isinstance(kind, str) or kind not in kinds:
        raise UserError(f"unknown kind {kind!r}{suggest(str(kind), kinds)}").at(path)
    return decode(kinds[kind], tree, path)


_FORMS: dict[Any, Callable[[tuple[Any, ...], Any, str], Any]] = {
    Annotated: _annotated,
    Any: lambda _, value, path: value,
    Literal: _literal,
    Mapping: _mapping,
    Union: _union,
    dict: _mapping,
    tuple: _tuple,
    types.UnionType: _union,
}
_WORDS = {
    bool: "true or false",
    float: "a number",
    int: "a whole number",
    str: "a text",
    tuple: "a list",
}


def _scalar(hint: type, value: Any, path: str) -> Any:
    if hint is float and type(value) in (int, float):
        if not math.isfinite(value):
            raise UserError(f"expected a finite number, got {value}").at(path)
        return float(value) + 0.0  # -0.0 is 0.0
    if hint is int and type(value) is float and value.is_integer():
        return int(value)
    if type(value) is not hint:
        raise UserError(f"expected {_WORDS[hint]}, got {shown(value)}").at(path)
    return value
