"""Plain trees of runs: the names of dotted fields, their values, setting them, and decoding."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from tread_lab.config.decode import (
    classes_of,
    decode,
    decode_field,
    encode,
    fields_of,
    opened,
)
from tread_lab.config.errors import UserError, placed, shown
from tread_lab.config.routes import RouteSpec
from tread_lab.config.run import BESIDE, RunSpec

TOP = tuple(field.name for field in dataclasses.fields(RunSpec))
SHORT = ("route", "rate")  # the first route, and the selection rate of all routes


def is_computed(value: Any) -> bool:
    """Whether a value is an expression to compute: `=B-4`."""
    return isinstance(value, str) and value.startswith("=")


def has_computed(value: Any) -> bool:
    """Whether there is an `=expression` anywhere in a plain tree."""
    if isinstance(value, Mapping):
        return any(map(has_computed, value.values()))
    return any(map(has_computed, value)) if isinstance(value, list | tuple) else is_computed(value)


def field_value(tree: Mapping[str, Any], key: str) -> Any:
    """Return a dotted field of the run of `tree`: as it is written, else its default.

    Raises:
        LookupError: no run has the field.
    """
    head, *below = key.split(".")
    with contextlib.suppress(LookupError):
        return value_at(tree, [head, *below])
    default = fields_of(RunSpec)[head].default
    part = decode_field(RunSpec, head, tree[head]) if head in tree else default
    return value_at(None if part is dataclasses.MISSING else encode(part), below)


def value_at(tree: Any, keys: Sequence[str]) -> Any:
    """Return what lies in nested mappings under one key after another.

    Raises:
        LookupError: a key is missing, or its place is no mapping.
    """
    for key in keys:
        tree = (tree if isinstance(tree, Mapping) else {})[key]
    return tree


def dotted(
    tree: Mapping[str, Any], prefix: str = "", *, whole: bool = False
) -> Iterator[tuple[str, Any]]:
    """Yield the leaves by dotted name: `{train: {lr: 1}}` gives (`train.lr`, 1); lists and empty
    mappings stay whole.

    Args:
        whole: whether a route, what has a `kind` and a system beside the loss are leaves, too.
    """
    for name, value in _in_order(tree):
        opens = isinstance(value, Mapping) and bool(value)
        if opens and not (whole and (name in ("route", *BESIDE) or "kind" in value)):
            yield from dotted(value, f"{prefix}{name}.", whole=whole)
        else:
            yield f"{prefix}{name}", value


def leaves_of(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Return the dotted fields that fields and their nested mappings set."""
    return dict(dotted(fields, whole=True))


def names_of(fields: Mapping[str, Any]) -> dict[str, None]:
    """Return the fields that dotted fields set, those of a route by one name each."""
    names = dict[str, None]()
    for name, value in dotted(fields):
        own = {"route": "routes", "rate": "route.rate"}.get(name, name)
        names[own] = None
        if own == "routes":
            with contextlib.suppress(UserError):  # which is raised where the route is decoded
                first = routes_of(value if name == own else [value])[:1]
                names |= dict.fromkeys(f"route.{part}" for route in first for part in route)
    return names


def set_once(places: dict[str, str], names: Iterable[str], place: str) -> None:
    """Note the place that sets some fields; refuse a second one."""
    for name in names:
        if (other := places.setdefault(name, place)) != place:
            raise UserError(f"{other} and {place} both set {name}; write one of them")


def _in_order(fields: Mapping[str, Any]) -> list[tuple[str, Any]]:
    """Return fields as they have to be set, however they are written: whole ones before their
    parts, a kind before what belongs to it, the first route after all routes, and the rate after
    the routes that have it."""

    def place(item: tuple[str, Any]) -> tuple[object, ...]:
        name = str(item[0])
        return name == "rate", name.count("."), name == "route", not name.endswith(".kind")

    return sorted(fields.items(), key=place)


def merged(cls: Any, under: Mapping[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    """Return the plain tree of a dataclass with some fields set, by their dotted names or nested.

    A mapping sets only what it names, on top of what a shorthand stands for; another `kind` starts
    anew. In a run `route` is the first of its routes, and `rate` that of all.

    Args:
        cls: the dataclass; `None` for mappings of any keys.
    """
    tree, known = dict(under), fields_of(cls) if cls else {}
    for name, value in _in_order(over) if cls else over.items():
        head, _, rest = (name, "", "") if name in tree else str(name).partition(".")
        own = {rest: value} if rest else value
        with placed(head if head in known else ""):
            if cls is RunSpec and head in SHORT:
                tree["routes"] = _routed(tree.get("routes"), head, own)
            else:
                options = classes_of(known[head].hint) if head in known else ()
                tree[head] = _over(options, tree.get(head, {} if rest else None), own)
    return tree


def _over(options: Sequence[Any], below: Any, value: Any) -> Any:
    """Return one field's value over another, as `merged` does of the parts of a mapping.

    Args:
        options: the dataclasses that the field may be, told apart by `kind` where there are
            several; the first is meant where none is written.
    """
    kinds = {getattr(option, "kind", None): option for option in options}
    usual = next(iter(kinds), None)
    if usual is not None:
        value, below = ({"kind": x} if isinstance(x, str) else x for x in (value, below))
    if not isinstance(value, Mapping) or not (options or isinstance(below, Mapping)):
        return value
    under = opened(options[0], below) if options and below is not None else below or {}
    kind = value.get("kind", under.get("kind", usual))
    under = under if kind == under.get("kind", usual) else {}
    return merged(kinds.get(str(kind), kinds.get(None)), under, value)


def _routed(routes: Any, head: str, value: Any) -> list[dict[str, Any]]:
    """Return routes with parts of the first one, `route`, or the `rate` of all set."""
    first, *others = routes_of(routes or [{}])
    if head == "rate":
        return [{**route, "rate": value} for route in (first, *others)]
    return [{**first, **opened(RouteSpec, value)}, *others]


def routes_of(routes: Any) -> list[dict[str, Any]]:
    """Return routes as mappings, `2->8` written out.

    Raises:
        UserError: not a list of routes.
    """
    if not isinstance(routes, list | tuple):
        raise UserError(f"routes: must be a list, got {shown(routes)}. Try routes: ['2->8'].")
    with placed("routes"):
        return [dict(opened(RouteSpec, route)) for route in routes]


def run_of(tree: Mapping[str, Any], path: str = "") -> RunSpec:
    """Return the run of a tree; with `then: {fields}` the run that goes on from it, fields changed.

    `{..., then: {routes: [], train: {steps: 100}}}` is 100 dense steps that start from the weights
    of the run without `then`, which becomes its parent (`init_from`).

    Raises:
        UserError: `then` is no mapping, or a field is wrong.
    """
    parent = {key: value for key, value in tree.items() if key != "then"}
    if tree.get("then") is None:
        return decode(RunSpec, parent, path)
    with placed("then"):
        child = merged(RunSpec, {**parent, "init_from": None}, opened(None, tree["then"]))
    start = {**(child["init_from"] or {}), "run": encode(run_of(parent, path))}
    return run_of({**child, "init_from": start}, path)
