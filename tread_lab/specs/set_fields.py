"""Setting dotted fields of a run's plain tree, shorthands such as `route` and `rate` included."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping
from typing import Any

from tread_lab.specs.errors import UserError
from tread_lab.specs.routes import RouteSpec
from tread_lab.specs.run import ModelSpec


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
