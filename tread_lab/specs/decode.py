"""Strict decoding of plain trees into frozen dataclasses: dotted paths, all mistakes at once."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import math
import re
import types
import typing
from collections.abc import Mapping
from typing import Annotated, Any, Literal, TypeVar, Union, get_args, get_origin

from tread_lab.specs.errors import Mistakes, UserError, shown, suggest
from tread_lab.specs.systems import Variants

T = TypeVar("T")

_WORDS = {
    bool: "true or false",
    float: "a number",
    int: "a whole number",
    str: "a text",
    tuple: "a list",
}
_RANGE = re.compile(r"[-+.\de]+(:|\.\.)[-+.\de]+.*")  # `1e-3:1e-2`, which axes alone have


def decode(cls: type[T], tree: Any, path: str = "") -> T:
    """Build the frozen dataclass `cls` from a plain tree of dicts, lists and scalars.

    Fields are decoded in their order. A dataclass may accept a shorthand by a static method
    `from_shorthand(value) -> dict`, called for a scalar in place of a mapping. A type
    `Annotated[hint, check]` is refused by what `check(value)` raises.

    Raises:
        UserError: every unknown key, missing key and wrong value, each with its dotted path.
    """
    if isinstance(tree, cls):
        return tree
    fields, values, wrong = fields_of(typing.cast(Any, cls)), dict[str, Any](), Mistakes()
    tree = _opened(cls, tree, path)
    for name in dict.fromkeys((*fields, *tree)):
        with wrong:
            if name in tree:
                values[name] = decode_field(cls, name, tree[name], path)
            elif fields[name][1]:
                raise UserError(f"missing key {name!r}").at(path)
    wrong.check()
    try:
        return cls(**values)
    except UserError as error:
        raise UserError(*(_dotted(path, line, fields) for line in error.args)) from None


def decode_field(cls: type, name: str, value: Any, path: str = "") -> Any:
    """Decode one field of the frozen dataclass `cls`.

    Raises:
        UserError: as `decode`, with the field's name in front.
    """
    fields = fields_of(cls)
    if name not in fields:
        raise UserError(f"unknown key {name!r}{suggest(str(name), fields)}").at(path)
    return _value(fields[name][0], value, f"{path}.{name}" if path else name)


def _dotted(path: str, line: str, fields: Mapping[str, Any]) -> str:
    """Return a line about a dataclass with its path: `model` and `heads: ...` are `model.heads`."""
    of_field = re.split(r"\W", line, maxsplit=1)[0] in fields
    return f"{path}{'.' if of_field else ': '}{line}" if path else line


def settle(spec: object, **fields: Any) -> None:
    """Set fields of a frozen dataclass while it is made."""
    for name, value in fields.items():
        object.__setattr__(spec, name, value)


@functools.cache
def fields_of(cls: Any) -> dict[str, tuple[Any, bool]]:
    """Return field name -> (type hint, whether it must be given)."""
    hints = typing.get_type_hints(cls, include_extras=True)
    missing = dataclasses.MISSING
    return {
        f.name: (hints[f.name], f.default is missing and f.default_factory is missing)
        for f in dataclasses.fields(cls)
    }


def default_of(field: dataclasses.Field[Any]) -> Any:
    """Return the default of a field; `MISSING` of one that must be given."""
    made = field.default_factory
    return field.default if made is dataclasses.MISSING else made()


def unhashed(default: Any = dataclasses.MISSING, factory: Any = dataclasses.MISSING) -> Any:
    """Declare a field that changes where and how a run is executed, never what it learns, such as
    a folder: signatures leave it out."""
    return dataclasses.field(default=default, default_factory=factory, metadata={"unhashed": True})


def encode(value: Any) -> Any:
    """Return the plain tree of a dataclass: dicts, lists and scalars, in field order."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {f.name: encode(getattr(value, f.name)) for f in dataclasses.fields(value)}
    if isinstance(value, tuple | list):
        return [encode(item) for item in value]
    if isinstance(value, Mapping):
        return {key: encode(item) for key, item in value.items()}
    return value


def _opened(cls: Any, tree: Any, path: str) -> Mapping[str, Any]:
    """Return the mapping of a dataclass; a shorthand is written out."""
    if isinstance(tree, Mapping):
        return tree
    if tree is None or isinstance(tree, list | tuple) or not hasattr(cls, "from_shorthand"):
        raise UserError(f"must be a mapping, got {shown(tree)}").at(path)
    try:
        written: Mapping[str, Any] = cls.from_shorthand(tree)
    except UserError as error:
        raise error.at(path) from None
    return written


def _value(hint: Any, value: Any, path: str) -> Any:
    """Decode a value of any type that a field may have."""
    form, parts = get_origin(hint) or hint, get_args(hint)
    if form is Annotated:
        return _annotated(parts, value, path)
    if form in (Union, types.UnionType):
        return _union(parts, value, path)
    if form is tuple:
        return _tuple(parts, value, path)
    if dataclasses.is_dataclass(hint):
        return decode(typing.cast(type, hint), value, path)
    if form is Literal and (value not in parts or type(value) not in map(type, parts)):
        raise UserError(f"must be one of {', '.join(map(str, parts))}, got {shown(value)}").at(path)
    if form in (dict, Mapping):
        if not isinstance(value, Mapping):
            raise UserError(f"must be a mapping, got {shown(value)}").at(path)
        return dict(value)
    return value if form in (Any, Literal) else _scalar(hint, value, path)


def _annotated(parts: tuple[Any, ...], value: Any, path: str) -> Any:
    """Decode one of several classes, or a value that a check accepts."""
    hint, check = parts
    if isinstance(check, Variants):
        none = value is None and type(None) in get_args(hint)
        return None if none else _tagged(check.classes, value, path)
    decoded = _value(hint, value, path)
    try:
        check(decoded)
    except UserError as error:
        raise error.at(path) from None
    return decoded


def _tuple(hints: tuple[Any, ...], value: Any, path: str) -> tuple[Any, ...]:
    if not isinstance(value, list | tuple):
        raise UserError(f"must be a list, got {shown(value)}").at(path)
    if hints[-1] is Ellipsis:
        hints = hints[:1] * len(value)
    if len(value) != len(hints):
        raise UserError(f"must be {len(hints)} values, got {len(value)}").at(path)
    items, wrong = list[Any](), Mistakes()
    for k, (hint, item) in enumerate(zip(hints, value)):
        with wrong:
            items.append(_value(hint, item, f"{path}[{k}]"))
    wrong.check()
    return tuple(items)


def _union(options: tuple[Any, ...], value: Any, path: str) -> Any:
    """Decode `X | None`, a union of dataclasses told apart by `kind`, or a union of other types."""
    if value is None and type(None) in options:
        return None
    options = tuple(option for option in options if option is not type(None))
    if len(options) == 1:
        return _value(options[0], value, path)
    if all(map(dataclasses.is_dataclass, options)):
        return _tagged(options, value, path)
    forms = [get_origin(option) or option for option in options]
    own = tuple if isinstance(value, list) else type(value)
    if own in forms:
        return _value(options[forms.index(own)], value, path)
    for option in options:
        with contextlib.suppress(UserError):
            return _value(option, value, path)
    names = " or ".join(_WORDS.get(form, form.__name__) for form in forms)
    raise UserError(f"must be {names}, got {shown(value)}").at(path)


def _tagged(options: tuple[Any, ...], value: Any, path: str) -> Any:
    """Decode one of several dataclasses by its `kind`, which may stand alone; the first without."""
    if isinstance(value, options):
        return value
    if not hasattr(options[0], "kind"):
        return decode(options[0], value, path)
    tree = {"kind": value} if isinstance(value, str) else value
    if not isinstance(tree, Mapping):
        raise UserError(f"must be a mapping or a kind, got {shown(value)}").at(path)
    kinds = {option.kind: option for option in options}
    kind = tree.get("kind", options[0].kind)
    if not isinstance(kind, str) or kind not in kinds:
        raise UserError(f"unknown kind {kind!r}{suggest(str(kind), kinds)}").at(path)
    return decode(kinds[kind], tree, path)


def _scalar(hint: type, value: Any, path: str) -> Any:
    if hint is float and type(value) in (int, float):
        if not math.isfinite(value):
            raise UserError(f"must be a finite number, got {value}").at(path)
        return float(value) + 0.0  # -0.0 is 0.0
    if hint is int and type(value) is float and value.is_integer():
        return int(value)
    if type(value) is not hint:
        several = hint in (int, float) and isinstance(value, str) and _RANGE.fullmatch(value)
        first, _, last = re.split(r"(:|\.\.)", str(value), maxsplit=1) if several else ("", "", "")
        remedy = f". Try 'axes.{path}={first}..{last.split()[0]} log'" if several else ""
        raise UserError(f"must be {_WORDS[hint]}, got {shown(value)}{remedy}").at(path)
    return value
