"""Dotted fields of a run's plain tree: which there are, read, set; `then` goes on from a run."""

from __future__ import annotations

import copy
import dataclasses
import difflib
import functools
import typing
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, get_args

from tread_lab.specs.decode import decode, decode_field, encode
from tread_lab.specs.errors import UserError, suggest
from tread_lab.specs.model import ModelSpec
from tread_lab.specs.routes import RouteSpec
from tread_lab.specs.run import InitSpec, RunSpec

SHORT = ("route", "rate")  # the first route, and the selection rate of all routes


def check_field(key: str) -> None:
    """Refuse a dotted field that no run has.

    Raises:
        UserError: there is no such field; the one that was meant is suggested.
    """
    head, _, rest = key.partition(".")
    if head == "then" or key == "rate":
        return check_field(rest) if rest else None
    if head == "route":
        fields: Any = _fields_below(RunSpec)["routes"]
        found = not rest or any(rest in _fields_below(cls) for cls in _classes(fields))
    else:
        found = _has(RunSpec, key)
    if not found:
        raise UserError(f"no such field{near_field(key)}")
    return None


def is_field(name: str) -> bool:
    """Whether a run has a field of this name at its top."""
    return name in _fields_below(RunSpec)


def near_field(key: str, others: Iterable[str] = SHORT) -> str:
    """`, did you mean 'train.lr'?` for `lr` or `trian.lr`, else the names there are.

    Args:
        others: names that are known beside the dotted fields.
    """
    leaf = key.rpartition(".")[2]
    known = [*others, *all_fields()]
    same = [name for name in known if name.rpartition(".")[2] == leaf]
    near = same or difflib.get_close_matches(key, known, n=1)
    if near:
        return f", did you mean {min(near, key=len)!r}?"
    return suggest(key, [*others, *_fields_below(RunSpec)])


@functools.cache
def all_fields() -> tuple[str, ...]:
    """Every dotted field of a run, those of its parents apart."""
    routes = (f"route.{name}" for cls in _routes() for name in _fields_below(cls))
    return tuple(dict.fromkeys([*_walk(RunSpec, ""), *routes]))


@functools.lru_cache(maxsize=256)
def _default(head: str) -> Any:
    found = next((f for f in dataclasses.fields(RunSpec) if f.name == head), None)
    if found is None:
        return None
    if found.default_factory is not dataclasses.MISSING:
        return encode(found.default_factory())
    return None if found.default is dataclasses.MISSING else encode(found.default)


def field_value(tree: Mapping[str, Any], key: str) -> Any:
    """What a dotted field is in the run of `tree`: as written, else its default.

    Raises:
        KeyError: no run has it.
    """
    node: Any = tree
    for part in key.split("."):
        if not isinstance(node, Mapping) or part not in node:
            return _decoded(tree, key)
        node = node[part]
    return node


def _decoded(tree: Mapping[str, Any], key: str) -> Any:
    """The field with shorthands opened and defaults filled in."""
    head, *rest = key.split(".")
    if head not in _fields_below(RunSpec):
        raise KeyError(key)
    node = encode(decode_field(RunSpec, head, tree[head])) if head in tree else _default(head)
    for part in rest:
        if not isinstance(node, Mapping) or part not in node:
            raise KeyError(key)
        node = node[part]
    return node


def _has(cls: Any, key: str) -> bool:
    head, _, rest = key.partition(".")
    hints = _fields_below(cls)
    if head not in hints:
        return False
    return not rest or any(_has(inner, rest) for inner in _classes(hints[head]))


def _walk(cls: Any, prefix: str) -> Iterator[str]:
    for name, hint in _fields_below(cls).items():
        yield prefix + name
        for inner in _classes(hint) if cls is not InitSpec and name != "routes" else ():
            yield from _walk(inner, f"{prefix}{name}.")


@functools.cache
def _fields_below(cls: Any) -> dict[str, Any]:
    return typing.get_type_hints(cls)


def _routes() -> tuple[Any, ...]:
    return _classes(_fields_below(RunSpec)["routes"])


@functools.cache
def _classes(hint: Any) -> tuple[Any, ...]:
    """The dataclasses in a type hint."""
    if dataclasses.is_dataclass(hint):
        return (hint,)
    return tuple(cls for part in get_args(hint) for cls in _classes(part))


def with_cell(
    base: Mapping[str, Any], cell: Mapping[str, Any], variants: Mapping[str, Mapping[str, Any]]
) -> dict[str, Any]:
    """The base tree with the fields of a cell, a variant's all at once."""
    tree = dict(base)
    for key, value in cell.items():
        if key in variants:
            tree = with_fields(tree, variants[key][value], f"variants.{key}.{value}")
        else:
            _set(tree, key, value)
    return tree


def with_fields(base: Mapping[str, Any], fields: Mapping[str, Any], path: str) -> dict[str, Any]:
    """The base tree with some fields changed; nested mappings change only what they name."""
    tree = dict(base)
    for key, value in fields.items():
        try:
            for dotted, leaf in _leaves(str(key), value):
                _set(tree, dotted, leaf)
        except UserError as error:
            raise error.at(path) from None
    return tree


def _leaves(key: str, value: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(value, Mapping) and value and key not in ("route",):
        for sub, item in value.items():
            yield from _leaves(f"{key}.{sub}", item)
    else:
        yield key, value


def _set(tree: dict[str, Any], key: str, value: Any) -> None:
    """Set a dotted field, copying what is on the way; `route` and `rate` are shorthands."""
    head, _, rest = key.partition(".")
    if head == "route":
        routes = routes_of(tree.get("routes") or [{}])
        routes[0] = {**routes[0], **({rest: value} if rest else route_tree(value))}
        tree["routes"] = routes
    elif key == "rate":
        tree["routes"] = [
            {**route, "rate": value} for route in routes_of(tree.get("routes") or [{}])
        ]
    elif not rest:
        tree[head] = copy.deepcopy(value)
    else:
        tree[head] = _opened(head, tree.get(head, {}))
        _set(tree[head], rest, value)


def _opened(key: str, value: Any) -> dict[str, Any]:
    """A field as a mapping of its own, a shorthand written out."""
    if key == "model" and isinstance(value, str):
        return ModelSpec.from_shorthand(value)
    return dict(value) if isinstance(value, Mapping) else {}


def routes_of(value: Any) -> list[dict[str, Any]]:
    """Routes as mappings.

    Raises:
        UserError: not a list of routes.
    """
    if not isinstance(value, list | tuple):
        raise UserError(f"expected a list of routes, got {value!r}").at("routes")
    return [route_tree(route) for route in value]


def route_tree(route: Any) -> dict[str, Any]:
    """A route as a mapping, `2->8` written out."""
    return dict(route) if isinstance(route, Mapping) else RouteSpec.from_shorthand(route)


def run_of(tree: Mapping[str, Any], path: str = "") -> RunSpec:
    """The run of a tree; with `then: {fields}` the run that goes on from it, fields changed.

    `{..., then: {routes: [], train: {steps: 100}}}` is 100 dense steps that start from the weights
    of the run without `then`, which becomes its parent (`init_from`).
    """
    tree = dict(tree)
    then = tree.pop("then", None)
    if then is None:
        return decode(RunSpec, tree, path)
    if not isinstance(then, Mapping):
        raise UserError(f"then: expected fields of the run that goes on, got {then!r}").at(path)
    child = with_fields({**tree, "init_from": None}, then, "then")
    start = {**(child["init_from"] or {}), "run": encode(run_of(tree, path))}
    return run_of({**child, "init_from": start}, path)
