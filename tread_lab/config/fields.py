"""Plain trees of runs: the names of dotted fields, their values, setting them, and decoding."""

from __future__ import annotations

import contextlib
import dataclasses
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from tread_lab.config.decode import (
    classes_of,
    decode,
    decode_field,
    decode_value,
    encode,
    fields_of,
    opened,
)
from tread_lab.config.errors import Mistakes, UserError, near, placed, shown, suggest
from tread_lab.config.routes import RouteSpec
from tread_lab.config.run import BESIDE, InitSpec, RunSpec

TOP = tuple(field.name for field in dataclasses.fields(RunSpec))
SHORT = ("route", "rate")  # the first route, and the selection rate of all routes
_OF_OTHER_RUNS = re.compile(r"^((then|init_from\.run)\.)+")
# Keys below an axis in sweeps of W&B and Ray Tune.
_RANGE_KEYS = re.compile(r"(.+)\.(min|max|values?|distribution|grid_search)")


def is_computed(value: Any) -> bool:
    """Whether a value is an expression to compute: `=B-4`."""
    return isinstance(value, str) and value.startswith("=")


def has_computed(value: Any) -> bool:
    """Whether there is an `=expression` anywhere in a plain tree."""
    if isinstance(value, Mapping):
        return any(map(has_computed, value.values()))
    return any(map(has_computed, value)) if isinstance(value, list | tuple) else is_computed(value)


def check_fields(fields: Iterable[tuple[str, str, Any]], others: Iterable[str] = SHORT) -> None:
    """Refuse unknown dotted fields and invalid values.

    Args:
        fields: (place in the file such as `axes.`, name, value) of each field.
        others: further valid names.

    Raises:
        UserError: lists all of them.
    """
    hints, wrong = defaultdict[str, list[Any]](list), Mistakes()
    for name, hint in _walk(RunSpec, ""):
        hints[name].append(hint)
    hints |= {"rate": hints["route.rate"], "route": [RouteSpec]}
    hints |= {"then": [Any], "init_from.run": [Any]}
    for place, key, value in fields:
        own = _OF_OTHER_RUNS.sub("", key)
        with wrong:
            if (axis := _RANGE_KEYS.fullmatch(own)) is not None and axis[1] in hints:
                remedy = "Try [1e-3, 3e-3] or 1e-4..1e-2 log."
                raise UserError(f"must be values or a range. {remedy}").at(f"{place}{axis[1]}")
            if own not in hints:
                raise UserError(f"no such field{near_field(own, others)}").at(f"{place}{key}")
            if not has_computed(value):
                _check_value(hints[own], value, f"{place}{key}")
    wrong.check()


def _check_value(hints: Sequence[Any], value: Any, path: str) -> None:
    """Refuse a value that no field of a name can have; classes of several kinds may share one."""
    wrong = Mistakes()
    for hint in hints:
        with wrong:
            decode_value(hint, value, path)
            return
    raise UserError(wrong[-1])


def near_field(key: str, others: Iterable[str] = SHORT) -> str:
    """Return `, did you mean 'train.lr'?` for `lr` or `trian.lr`, else the names at the top.

    Args:
        others: further valid names.
    """
    fields = {*others, *all_fields()}
    return suggest(
        key, fields if near(key, fields) else {n for n in (*others, *TOP) if "." not in n}
    )


def all_fields(cls: type = RunSpec) -> tuple[str, ...]:
    """Return every dotted field of a run or another spec, without those of its parents."""
    return tuple(dict.fromkeys(name for name, _ in _walk(cls, "")))


def _walk(cls: Any, prefix: str) -> Iterator[tuple[str, Any]]:
    """Yield the dotted fields below a dataclass, with their types."""
    for name, (hint, *_) in fields_of(cls).items():
        yield prefix + name, hint
        below = "route." if name == "routes" else f"{prefix}{name}."
        for part in classes_of(hint) if cls is not InitSpec else ():
            yield from _walk(part, below)


def field_value(tree: Mapping[str, Any], key: str) -> Any:
    """Return a dotted field of the run of `tree`, or its default.

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
    """Return the value in nested mappings under a sequence of keys.

    Raises:
        LookupError: a key is missing, or a value on the way is not a mapping.
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
        whole: whether routes, values with a `kind` and systems beside the loss are leaves.
    """
    for name, value in _in_order(tree):
        opens = isinstance(value, Mapping) and bool(value)
        if opens and not (whole and (name in ("route", *BESIDE) or "kind" in value)):
            yield from dotted(value, f"{prefix}{name}.", whole=whole)
        else:
            yield f"{prefix}{name}", value


def leaves_of(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Return the dotted fields set by nested mappings."""
    return dict(dotted(fields, whole=True))


def names_of(fields: Mapping[str, Any]) -> dict[str, None]:
    """Return the field names set by dotted fields, one name per field of a route."""
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
    """Record the place that sets some fields; refuse a second place."""
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

    A mapping sets only the fields that it names, after a shorthand is expanded; another `kind`
    resets the others. In a run, `route` is the first route and `rate` applies to all.

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
    """Return the run of a tree; with `then: {fields}`, the run that continues it with changed
    fields.

    `{..., then: {routes: [], train: {steps: 100}}}` is 100 dense steps that start from the weights
    of the run without `then`, which becomes its parent (`init_from`).

    Raises:
        UserError: `then` is not a mapping, or a field is invalid.
    """
    parent = {key: value for key, value in tree.items() if key != "then"}
    if tree.get("then") is None:
        return decode(RunSpec, parent, path)
    with placed("then"):
        child = merged(RunSpec, {**parent, "init_from": None}, opened(None, tree["then"]))
    start = {**(child["init_from"] or {}), "run": encode(run_of(parent, path))}
    return run_of({**child, "init_from": start}, path)
