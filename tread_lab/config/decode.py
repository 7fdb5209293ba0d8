"""Strict decoding of plain trees into frozen dataclasses: dotted paths, all mistakes at once."""

from __future__ import annotations

import dataclasses
import functools
import math
import re
import types
import typing
from collections.abc import Mapping
from typing import Annotated, Any, Literal, NamedTuple, TypeVar, Union, get_args, get_origin

from tread_lab.config.errors import Mistakes, UserError, placed, shown, suggest
from tread_lab.config.systems import Variants

T = TypeVar("T")

_WORDS = {
    bool: "true or false",
    float: "a number",
    int: "a whole number",
    str: "a text",
    tuple: "a list",
}
_N = r"-?[.\d]+(?:e[-+]?\d+)?"
# `1e-3:1e-2`, `suggest_float("lr", 1e-3, 1e-2)`: ranges of other tools, which axes write as `..`
_RANGE = re.compile(rf"(?<![\w.])(\[?)({_N})(?:, *|:|\.\.)({_N})(?![\w.])")


class Field(NamedTuple):
    """A field of a spec: its type with what it is annotated with, and its default."""

    hint: Any
    default: Any = dataclasses.MISSING


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
    with placed(path):
        tree = opened(cls, tree)
    for name in dict.fromkeys((*fields, *tree)):
        with wrong:
            if name in tree:
                values[name] = decode_field(cls, name, tree[name], path)
            elif fields[name].default is dataclasses.MISSING:
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
    return decode_value(fields[name].hint, value, f"{path}.{name}" if path else name)


def _dotted(path: str, line: str, fields: Mapping[str, Any]) -> str:
    """Return a line about a dataclass with its path: `model` and `heads: ...` are `model.heads`."""
    of_field = re.split(r"\W", line, maxsplit=1)[0] in fields
    return f"{path}{'.' if of_field else ': '}{line}" if path else line


def settle(spec: object, **fields: Any) -> None:
    """Set fields of a frozen dataclass while it is made."""
    for name, value in fields.items():
        object.__setattr__(spec, name, value)


@functools.cache
def fields_of(cls: Any) -> dict[str, Field]:
    """Return the fields of a dataclass by name."""
    hints, missing = typing.get_type_hints(cls, include_extras=True), dataclasses.MISSING
    return {
        field.name: Field(
            hints[field.name],
            field.default if field.default_factory is missing else field.default_factory(),
        )
        for field in dataclasses.fields(cls)
    }


def classes_of(hint: Any) -> tuple[Any, ...]:
    """Return the dataclasses in a type, the first one meant where no `kind` is written."""
    if dataclasses.is_dataclass(hint):
        return (hint,)
    parts = get_args(hint)
    if get_origin(hint) is Annotated and isinstance(parts[1], Variants):
        return parts[1].classes
    return tuple(cls for part in parts for cls in classes_of(part))


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


def opened(cls: Any, tree: Any) -> Mapping[str, Any]:
    """Return the mapping of a dataclass; a shorthand is written out."""
    if isinstance(tree, Mapping):
        return tree
    if tree is None or isinstance(tree, list | tuple) or not hasattr(cls, "from_shorthand"):
        example = [(name, field.default) for name, field in fields_of(cls).items()] if cls else []
        remedy = ". Try {{{}: {}}}.".format(*example[0]) if example else ""
        raise UserError(f"must be a mapping, got {shown(tree)}{remedy}")
    written: Mapping[str, Any] = cls.from_shorthand(tree)
    return written


def decode_value(hint: Any, value: Any, path: str) -> Any:
    """Decode a value of any type that a field may have."""
    form, parts = get_origin(hint) or hint, get_args(hint)
    if form is Annotated and not isinstance(parts[1], Variants):
        decoded = decode_value(parts[0], value, path)
        with placed(path):
            parts[1](decoded)
        return decoded
    if value is None and type(None) in (*parts, *get_args(parts[0] if form is Annotated else None)):
        return None
    if form in (Annotated, Union, types.UnionType):
        return _union(hint, [part for part in parts if part is not type(None)], value, path)
    if form is tuple:
        return _tuple(parts, value, path)
    if dataclasses.is_dataclass(hint):
        return decode(typing.cast(type, hint), value, path)
    if form is Literal and (value not in parts or type(value) not in map(type, parts)):
        raise UserError(f"must be one of {', '.join(map(str, parts))}, got {shown(value)}").at(path)
    if form in (dict, Mapping):
        with placed(path):
            return dict(opened(None, value))
    return value if form in (Any, Literal) else _scalar(hint, value, path)


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
            items.append(decode_value(hint, item, f"{path}[{k}]"))
    wrong.check()
    return tuple(items)


def _union(hint: Any, options: list[Any], value: Any, path: str) -> Any:
    """Decode `X | None`, dataclasses told apart by `kind`, or one of several plain types."""
    if classes := classes_of(hint):
        return _tagged(classes, value, path)
    forms = [get_origin(option) or option for option in options]
    own = tuple if isinstance(value, list) else type(value)
    if len(options) == 1 or own in forms:
        return decode_value(options[forms.index(own) if own in forms else 0], value, path)
    names = " or ".join(_WORDS[form] for form in forms)
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
        ends = _RANGE.search(str(value)) if hint in (int, float) else None
        remedy = ""
        if ends:
            values = f"[{ends[2]}, {ends[3]}]" if ends[1] else f"{ends[2]}..{ends[3]} log 5"
            field = path.removeprefix("axes.")
            in_file = path.startswith("axes.")
            remedy = f". Try {field}: {values}" if in_file else f". Try 'axes.{field}={values}'"
        raise UserError(f"must be {_WORDS[hint]}, got {shown(value)}{remedy}").at(path)
    return value
