"""Plain trees become frozen specs and back: strict types, bounds, dotted paths, all mistakes."""

from __future__ import annotations

import dataclasses
import functools
import itertools
import math
import re
import types
import typing
from collections.abc import Callable, Mapping
from typing import Annotated, Any, Literal, NamedTuple, TypeVar, Union, get_args, get_origin

from tread_lab.config.errors import Mistakes, UserError, lookup, placed, shown, suggest
from tread_lab.config.registry import Variants

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
_LINEAR = re.compile(r"uniform|interval|float|linear")
_RANGE = re.compile(rf"(?<![\w.])(\[?)({_N})(?:, *|:|\.\.)({_N})(?![\w.])")


def within(interval: str) -> Callable[[float], None]:
    """Return a check that refuses numbers outside an interval such as `[0, 1)` or `(0, inf)`, for
    the type of a field: `Annotated[float, within("[0, 1)")]`."""
    low, high = map(float, interval[1:-1].split(","))
    ends = [end for end, bracket in ((low, interval[0]), (high, interval[-1])) if bracket in "[]"]
    required = f"in {interval}"
    if high == math.inf:
        required = f"at least {low:g}" if ends else f"above {low:g}"

    def check(value: float) -> None:
        if not (low < value < high or value in ends):
            raise UserError(f"must be {required}, got {value}")

    return check


Count = Annotated[int, within("[1, inf)")]
Natural = Annotated[int, within("[0, inf)")]
Positive = Annotated[float, within("(0, inf)")]
NotNegative = Annotated[float, within("[0, inf)")]
Share = Annotated[float, within("[0, 1]")]
Rate = Annotated[float, within("[0, 1)")]


class Field(NamedTuple):
    """A field of a spec: its annotated type, its default, and whether signatures omit it."""

    hint: Any
    default: Any
    unhashed: bool


def decode(cls: type[T], tree: Any, path: str = "") -> T:
    """Build the frozen dataclass `cls` from a plain tree of dicts, lists and scalars.

    Fields are decoded in their order. A dataclass may accept a shorthand by a static method
    `from_shorthand(value) -> dict`, called for a scalar in place of a mapping. For a type
    `Annotated[hint, check]`, `check(value)` raises for invalid values.

    Raises:
        UserError: lists every unknown key, missing key and wrong value with its dotted path.
    """
    if isinstance(tree, cls):
        return tree
    fields, values, wrong = fields_of(typing.cast(Any, cls)), dict[str, Any](), Mistakes()
    with placed(path):
        tree = opened(cls, tree, path)
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
            field.metadata.get("unhashed", False),
        )
        for field in dataclasses.fields(cls)
    }


def classes_of(hint: Any) -> tuple[Any, ...]:
    """Return the dataclasses in a type; the first is the default `kind`."""
    if dataclasses.is_dataclass(hint):
        return (hint,)
    parts = get_args(hint)
    if get_origin(hint) is Annotated and isinstance(parts[1], Variants):
        return parts[1].classes
    return tuple(cls for part in parts for cls in classes_of(part))


def unhashed(default: Any = dataclasses.MISSING, factory: Any = dataclasses.MISSING) -> Any:
    """Declare a field that signatures omit, because it changes execution only, such as a folder."""
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


def opened(cls: Any, tree: Any, path: str = "") -> Mapping[str, Any]:
    """Return the mapping of a dataclass; a shorthand is written out.

    Args:
        path: dotted path, with which a suggested override begins.
    """
    if isinstance(tree, Mapping):
        return tree
    if tree is None or isinstance(tree, list | tuple) or not hasattr(cls, "from_shorthand"):
        usual = ((k, v.default) for k, v in fields_of(cls).items()) if cls else ()
        examples = (f"{k}={v}" for k, v in usual if type(v) in (int, float, str))
        remedy = "".join(f". Try {path}.{example}." for example in itertools.islice(examples, 1))
        raise UserError(f"must be a mapping, got {shown(tree)}{remedy}")
    written: Mapping[str, Any] = cls.from_shorthand(tree)
    return written


def decode_value(hint: Any, value: Any, path: str) -> Any:
    """Decode a value of any type that a field may have.

    Among several plain types, the value's own type is used, else the first. Among dataclasses,
    `kind` decides.
    """
    form, parts = get_origin(hint) or hint, get_args(hint)
    if form is Annotated and not isinstance(parts[1], Variants):
        decoded = decode_value(parts[0], value, path)
        with placed(path):
            parts[1](decoded)
        return decoded
    if value is None and type(None) in (*parts, *get_args(parts[0] if form is Annotated else None)):
        return None
    if form is tuple:
        return _tuple(parts, value, path)
    if form in (*_WORDS, Literal):
        return _scalar(form, parts, value, path)
    if classes := classes_of(hint):
        return _of_kind(classes, value, path)
    if form in (Union, types.UnionType):
        own = tuple if isinstance(value, list) else type(value)
        meant = [part for part in parts if (get_origin(part) or part) is own]
        return decode_value((*meant, *parts)[0], value, path)
    with placed(path):
        return value if form is Any else dict(opened(None, value))


def _tuple(hints: tuple[Any, ...], value: Any, path: str) -> tuple[Any, ...]:
    hints = hints[:1] if hints[-1] is Ellipsis else hints
    if not isinstance(value, list | tuple):
        raise UserError(f"must be a list, got {shown(value)}").at(path)
    if len(hints) > 1 and len(value) != len(hints):
        raise UserError(f"must be {len(hints)} values, got {len(value)}").at(path)
    items, wrong = list[Any](), Mistakes()
    for k, item in enumerate(value):
        with wrong:
            items.append(decode_value(hints[k % len(hints)], item, f"{path}[{k}]"))
    wrong.check()
    return tuple(items)


def _of_kind(options: tuple[Any, ...], value: Any, path: str) -> Any:
    """Decode one of several dataclasses by its `kind`, which may stand alone; the first without."""
    if isinstance(value, options) or not hasattr(options[0], "kind"):
        return value if isinstance(value, options) else decode(options[0], value, path)
    with placed(path):
        tree = opened(None, {"kind": value} if isinstance(value, str) else value)
    kinds = {option.kind: option for option in options}
    kind = lookup(kinds, str(tree.get("kind", options[0].kind)), f"{path}.kind")
    return decode(kind, tree, path)


def _scalar(hint: Any, known: tuple[Any, ...], value: Any, path: str) -> Any:
    if hint is Literal:
        if (type(value), value) in [(type(word), word) for word in known]:
            return value
        required = f"must be one of {', '.join(map(str, known))}, got {shown(value)}"
        raise UserError(required).at(path)
    if hint is float and type(value) in (int, float) and math.isfinite(value):
        return float(value) + 0.0  # -0.0 is 0.0
    if hint is int and type(value) is float and value.is_integer():
        return int(value)
    if type(value) is not hint or hint is float:
        remedy = _as_axis(value, path) if hint in (int, float) else ""
        required = "values or a range" if remedy and path.startswith("axes.") else _WORDS[hint]
        raise UserError(f"must be {required}, got {shown(value)}{remedy}").at(path)
    return value


def _as_axis(value: Any, path: str) -> str:
    """Return how the values of an axis are written that a text in another tool's grammar means."""
    ends = _RANGE.search(str(value))
    if ends is None:
        return ""
    text = str(value)
    scale = "linear" if _LINEAR.search(text) and "log" not in text else "log"
    values = f"[{ends[2]}, {ends[3]}]" if ends[1] else f"{ends[2]}..{ends[3]} {scale} 5"
    field, five = path.removeprefix("axes."), "" if ends[1] else ", five values of an axis"
    if field != path:
        return f". Try {field}: {values}{five}."
    return f". Try 'axes.{field}={values}'{five}."
