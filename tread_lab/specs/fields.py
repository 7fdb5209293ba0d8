"""Dotted fields of a run's plain tree: their names, their values, setting them, and `then`."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import itertools
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, get_args

from tread_lab.specs.decode import decode, decode_field, encode, fields_of
from tread_lab.specs.errors import UserError, near, shown, suggest
from tread_lab.specs.model import ModelSpec
from tread_lab.specs.recipe import EmaSpec
from tread_lab.specs.routes import ReEntrySpec, RouteSpec
from tread_lab.specs.run import InitSpec, RunSpec
from tread_lab.specs.systems import SYSTEMS, Variants

TOP = tuple(field.name for field in dataclasses.fields(RunSpec))
# A field that may be one value -> what the value says, whose parts can be set.
_WRITTEN_OUT: Mapping[str, Callable[[Any], dict[str, Any]]] = {
    "model": ModelSpec.from_shorthand,
    "ema": EmaSpec.from_shorthand,
    "re_entry": ReEntrySpec.from_shorthand,
    **dict.fromkeys(("process", "bypass", "loss"), lambda kind: {"kind": kind}),
    "captions": lambda encoder: {"encoder": encoder},
}
# A section that is always a mapping -> an override of a part of it.
_SECTIONS = {
    "train": "train.lr=1e-3",
    "data": "data.path=FOLDER",
    "execution": "execution.log_every=20",
    "init_from": "init_from.file=WEIGHTS",
}
_KINDS = ("process", "bypass", "loss")  # sections whose kind may stand alone
SHORT = ("route", "rate")  # the first route, and the selection rate of all routes


def check_field(key: str) -> None:
    """Refuse a dotted field that no run has."""
    own = re.sub(r"^((then|init_from\.run)\.)+", "", key)
    if own in {*SHORT, "then", *all_fields()}:
        return
    raise UserError(f"no such field{near_field(own)}")


def near_field(key: str, others: Iterable[str] = SHORT) -> str:
    """Return `, did you mean 'train.lr'?` for `lr` or `trian.lr`, else the names at the top.

    Args:
        others: names that are valid beside the dotted fields.
    """
    if (meant := near(key, {*others, *all_fields()})) is not None:
        return f", did you mean {meant!r}?"
    return suggest(key, {name for name in (*others, *TOP) if "." not in name})


def all_fields() -> tuple[str, ...]:
    """Return every dotted field of a run, without those of its parents."""
    return _fields_with(tuple(SYSTEMS))


@functools.cache
def _fields_with(systems: tuple[str, ...]) -> tuple[str, ...]:
    """Return the dotted fields of a run where there are these systems."""
    return tuple(dict.fromkeys(_walk(RunSpec, "")))


def _walk(cls: Any, prefix: str) -> Iterator[str]:
    """Yield the dotted fields below a dataclass."""
    for name, (hint, _) in fields_of(cls).items():
        yield prefix + name
        below = "route." if name == "routes" else f"{prefix}{name}."
        for part in _classes(hint) if cls is not InitSpec else ():
            yield from _walk(part, below)


def _classes(hint: Any) -> tuple[Any, ...]:
    """Return the dataclasses in a type hint."""
    if dataclasses.is_dataclass(hint):
        return (hint,)
    if variants := [said for said in get_args(hint) if isinstance(said, Variants)]:
        return variants[0].classes
    return tuple(cls for part in get_args(hint) for cls in _classes(part))


def field_value(tree: Mapping[str, Any], key: str) -> Any:
    """Return a dotted field of the run of `tree`: as it is written, else its default.

    Raises:
        KeyError: no run has the field.
    """
    head, *below = key.split(".")
    try:
        return value_at(tree, [head, *below])
    except KeyError:
        part = encode(decode_field(RunSpec, head, tree[head])) if head in tree else _default(head)
        return value_at(part, below)


def value_at(tree: Any, keys: Sequence[str]) -> Any:
    """Return what lies in nested mappings under one key after another.

    Raises:
        KeyError: a key is missing, or its place is no mapping.
    """
    for key in keys:
        if not isinstance(tree, Mapping):
            raise KeyError(key)
        tree = tree[key]
    return tree


def dotted(
    tree: Mapping[str, Any], prefix: str = "", *, empty: bool = False
) -> Iterator[tuple[str, Any]]:
    """Yield the leaves by dotted name: `{train: {lr: 1}}` gives (`train.lr`, 1).

    Lists stay whole; an empty mapping is a leaf only if `empty` is set.
    """
    for name, value in tree.items():
        if isinstance(value, Mapping) and (value or not empty):
            yield from dotted(value, f"{prefix}{name}.", empty=empty)
        else:
            yield f"{prefix}{name}", value


@functools.cache
def _default(name: str) -> Any:
    """Return the plain tree of a field that nothing sets; `None` for one that must be set."""
    field = RunSpec.__dataclass_fields__[name]
    if field.default_factory is not dataclasses.MISSING:
        return encode(field.default_factory())
    return None if field.default is dataclasses.MISSING else encode(field.default)


def with_cell(
    base: Mapping[str, Any],
    cell: Mapping[str, Any],
    variants: Mapping[str, Mapping[str, Any]],
    fixed: Mapping[str, Any],
) -> dict[str, Any]:
    """Return the base tree with the fields of a cell set, those of its variants, too.

    Args:
        base: the tree in which the dotted fields `fixed` are set already.

    Raises:
        UserError: two of the cell's axes, or one and `fixed`, set one field, or a field is wrong.
    """
    tree, places = dict(base), dict[str, str]()
    set_once(places, names_of(fixed), "fixed")
    fields: dict[str, Any] = {}
    for axis, written in _by_axis(cell, variants):
        own = leaves_of(written)
        set_once(places, names_of(own), axis)
        for name, part in itertools.product(own, fixed):
            if lies_in(_in_run(part), name):
                raise UserError(f"fixed.{part}: {axis} sets {name} whole; write it there")
        fields |= {name: (leaf, axis) for name, leaf in own.items()}
    for name, (leaf, axis) in in_order(fields):
        try:
            _set(tree, name, leaf)
        except UserError as error:
            raise error.at("" if axis in cell else axis) from None
    return tree


def parts_set(cell: Mapping[str, Any], variants: Mapping[str, Mapping[str, Any]]) -> set[str]:
    """Return the fields at the top of a run that a cell sets, or of which it sets a part."""
    written = (fields for _, fields in _by_axis(cell, variants))
    return {name.partition(".")[0] for fields in written for name in leaves_of(fields)}


def set_once(places: dict[str, str], names: Iterable[str], place: str) -> None:
    """Note the place that sets some fields; refuse a second one."""
    for name in names:
        if (other := places.setdefault(name, place)) != place:
            raise UserError(f"{other} and {place} both set {name}; write one of them")


def _in_run(field: str) -> str:
    """Return a dotted field as it lies in a run: `route` and `rate` are in its `routes`."""
    return f"routes.{field}" if field.partition(".")[0] in SHORT else field


def _by_axis(
    cell: Mapping[str, Any], variants: Mapping[str, Mapping[str, Any]]
) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Yield every axis of a cell, of `variants` the chosen one, with the fields that it sets."""
    for key, value in in_order(cell):
        if key in variants:
            yield f"variants.{key}.{value}", variants[key][value]
        else:
            yield key, {key: value}


def names_of(fields: Mapping[str, Any]) -> Iterable[str]:
    """Return the fields that dotted fields set, those of a route by one name each."""
    named = dict(fields)
    first = [named["route"]] if "route" in named else []
    for routes in (named.get("routes", []), first):
        with contextlib.suppress(UserError):  # which is told where the route is decoded
            named |= {f"route.{part}": None for route in routes_of(routes) for part in route}
    short = {"route": "routes", "rate": "route.rate"}
    return dict.fromkeys(short.get(name, name) for name in named)


def with_fields(base: Mapping[str, Any], fields: Mapping[str, Any], path: str) -> dict[str, Any]:
    """Return the base tree with some fields set; nested mappings set only what they name."""
    tree = dict(base)
    try:
        for name, leaf in in_order(leaves_of(fields)):
            _set(tree, name, leaf)
    except UserError as error:
        raise error.at(path) from None
    return tree


def in_order(fields: Mapping[str, Any]) -> list[tuple[str, Any]]:
    """Return fields as they have to be set, however they are written: whole ones before their
    parts, a kind before what belongs to it, the first route after all routes, and the rate after
    the routes that have it."""

    def place(item: tuple[str, Any]) -> tuple[object, ...]:
        name = str(item[0])
        return name == "rate", name.count("."), name == "route", not name.endswith(".kind")

    return sorted(fields.items(), key=place)


def leaves_of(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Return the dotted fields that fields and their nested mappings set, with their values; a
    route is whole."""
    parts = (
        [(key, value)] if key == "route" else dotted({key: value}, empty=True)
        for key, value in in_order(fields)
    )
    return dict(itertools.chain.from_iterable(parts))


def lies_in(field: str, other: str) -> bool:
    """Return whether a dotted field is another one or a part of it."""
    return f"{field}.".startswith(f"{other}.")


def _set(tree: dict[str, Any], key: str, value: Any) -> None:
    """Set a dotted field, copying the mappings above it; `route` and `rate` belong to `routes`."""
    head, _, rest = key.partition(".")
    if head == "route":
        first, *others = routes_of(tree.get("routes") or [{}])
        first |= {rest: value} if rest else _route_tree(value)
        tree["routes"] = [first, *others]
    elif key == "rate":
        routes = routes_of(tree.get("routes") or [{}])
        tree["routes"] = [{**route, "rate": value} for route in routes]
    elif not rest:
        _set_whole(tree, head, value)
    else:
        tree[head] = _opened(head, tree.get(head))
        if rest == "kind" and head in _KINDS:
            kind = tree[head].get("kind", _default(head)["kind"])
            tree[head] = tree[head] if kind == value else {}
        _set(tree[head], rest, value)


def _set_whole(tree: dict[str, Any], name: str, value: Any) -> None:
    """Set a section or a field that has no parts; an empty mapping names nothing."""
    if name in _KINDS and isinstance(value, str):
        _set(tree, f"{name}.kind", value)
    elif value != {} or not tree.get(name):
        if not isinstance(value, Mapping) and (value is not None or name != "init_from"):
            _check_section(name, value)
        tree[name] = value


def _opened(name: str, value: Any) -> dict[str, Any]:
    """Return the mapping that a section is or stands for, so that a part of it can be set."""
    if value is None or isinstance(value, Mapping):
        return dict(value or {})
    _check_section(name, value)
    return _WRITTEN_OUT[name](value) if name in _WRITTEN_OUT else {}


def _check_section(name: str, value: Any) -> None:
    """Refuse a word or a number that would stand in place of a whole section."""
    if name in _SECTIONS:
        example = _SECTIONS[name]
        raise UserError(f"{name}: must be a mapping, got {shown(value)}. Try {example}.")


def routes_of(routes: Any) -> list[dict[str, Any]]:
    """Return routes as mappings, `2->8` written out.

    Raises:
        UserError: not a list of routes.
    """
    if not isinstance(routes, list | tuple):
        raise UserError(f"expected a list of routes, got {shown(routes)}").at("routes")
    return [_route_tree(route) for route in routes]


def _route_tree(route: Any) -> dict[str, Any]:
    return dict(route) if isinstance(route, Mapping) else RouteSpec.from_shorthand(route)


def run_of(tree: Mapping[str, Any], path: str = "") -> RunSpec:
    """Return the run of a tree; with `then: {fields}` the run that goes on from it, fields changed.

    `{..., then: {routes: [], train: {steps: 100}}}` is 100 dense steps that start from the weights
    of the run without `then`, which becomes its parent (`init_from`).

    Raises:
        UserError: `then` is no mapping, or a field is wrong.
    """
    parent = {key: value for key, value in tree.items() if key != "then"}
    then = tree.get("then")
    if then is None:
        return decode(RunSpec, parent, path)
    if not isinstance(then, Mapping):
        raise UserError(f"then: expected fields of the run that goes on, got {shown(then)}")
    child = with_fields({**parent, "init_from": None}, then, "then")
    start = {**(child["init_from"] or {}), "run": encode(run_of(parent, path))}
    return run_of({**child, "init_from": start}, path)
