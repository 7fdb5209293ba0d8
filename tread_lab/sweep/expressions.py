"""Expressions of a sweep file over the fields of a run: `where: start < end`, `=B-4`."""

from __future__ import annotations

import ast
import contextlib
import functools
import operator
import warnings
from collections.abc import Callable, Mapping
from typing import Any

from tread_lab.config.errors import UserError, shown
from tread_lab.config.fields import field_value, is_computed, near_field, routes_of, value_at
from tread_lab.config.labels import Cell, labelled
from tread_lab.config.routes import RouteSpec, block_index

Lookup = Callable[[str], Any]

_OPERATORS: dict[type, Callable[..., Any]] = {
    **{ast.Not: operator.not_, ast.USub: operator.neg, ast.Add: operator.add},
    **{ast.Sub: operator.sub, ast.Mult: operator.mul, ast.Div: operator.truediv},
    **{ast.FloorDiv: operator.floordiv, ast.Mod: operator.mod},
    **{ast.Eq: operator.eq, ast.NotEq: operator.ne, ast.Lt: operator.lt, ast.LtE: operator.le},
    **{ast.Gt: operator.gt, ast.GtE: operator.ge},
    **{ast.In: lambda a, b: a in b, ast.NotIn: lambda a, b: a not in b},
}
_FUNCTIONS: dict[str, Callable[..., Any]] = {"min": min, "max": max, "round": round}
_ROUTE = ("start", "end", "length", "rate")


def evaluate(text: str, lookup: Lookup) -> Any:
    """Return the value of `text`; `lookup` returns the values of (dotted) names.

    It may contain numbers, texts, lists, `+ - * / // %`, comparisons, `in`, `and`, `or`, `not`,
    and the functions `min`, `max` and `round` (to a whole number).

    Raises:
        UserError: not an expression, an unknown name, or incompatible operands.
    """
    try:
        return _value(_parsed(text), lookup)
    except UserError:
        raise
    except (TypeError, ValueError, ArithmeticError, RecursionError) as error:
        raise UserError(f"cannot evaluate {shown(text)}: {error}") from None


@functools.lru_cache(maxsize=1024)
def _parsed(text: str) -> ast.expr:
    """Return the tree of `text`.

    Raises:
        UserError: not an expression.
    """
    try:
        with warnings.catch_warnings(action="ignore"):
            return ast.parse(text.strip(), mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        example = "start < end and rate >= 0.5"
        raise UserError(f"must be an expression, got {shown(text)}. Try {example}.") from None


def _value(node: ast.expr, lookup: Lookup) -> Any:
    match node:
        case ast.Constant(value=bool() | int() | float() | str()):
            return node.value
        case ast.Name() | ast.Attribute():
            return lookup(ast.unparse(node))
        case ast.List(elts=items) | ast.Tuple(elts=items):
            return [_value(item, lookup) for item in items]
        case ast.BoolOp(op=op, values=[*parts, last]):
            for part in parts:
                if bool(value := _value(part, lookup)) is isinstance(op, ast.Or):
                    return value
            return _value(last, lookup)
        case ast.UnaryOp(op=op, operand=part) if type(op) in _OPERATORS:
            return _OPERATORS[type(op)](_value(part, lookup))
        case ast.BinOp(left=left, op=op, right=right) if type(op) in _OPERATORS:
            return _OPERATORS[type(op)](_value(left, lookup), _value(right, lookup))
        case ast.Compare(left=left, ops=ops, comparators=rest) if {*map(type, ops)} <= {
            *_OPERATORS
        }:
            values = [_value(part, lookup) for part in (left, *rest)]
            pairs = zip(ops, values, values[1:])
            return all(_OPERATORS[type(op)](a, b) for op, a, b in pairs)
        case ast.Call(func=ast.Name(id=name), args=[_, *_] as parts, keywords=[]) if (
            name in _FUNCTIONS
        ):
            return _FUNCTIONS[name](*(_value(part, lookup) for part in parts))
    got = shown(ast.unparse(node))
    raise UserError(f"must compare fields and numbers, got {got}. Try start < end.")


class CellNames:
    """Names available in expressions: the cell's axes, start, end, length, rate, B, N, and any
    field of the run by its dotted name.

    Args:
        tree: the run's plain tree, with `=expression` for computed values.
        facts: further names, such as `device.precisions`.
    """

    def __init__(
        self, tree: Mapping[str, Any], cell: Cell, facts: Mapping[str, Any] | None = None
    ) -> None:
        self.tree, self.facts, self.labels = tree, facts or {}, labelled(cell)
        self._results: dict[str, Any] = {}

    def __call__(self, name: str) -> Any:
        if name in _ROUTE:
            return self._route(name)
        if name == "B":
            return self("model.depth")
        if name == "N":
            return (self("data.size") // self("model.patch")) ** 2
        return self.settled(self.labels[name] if name in self.labels else self._field(name))

    def settled(self, value: Any) -> Any:
        """Return `value` with every `=expression` in it computed.

        Raises:
            UserError: an invalid or circular expression.
        """
        if isinstance(value, Mapping):
            return {key: self.settled(item) for key, item in value.items()}
        if isinstance(value, list | tuple):
            return [self.settled(item) for item in value]
        return self._computed(value) if is_computed(value) else value

    def _computed(self, text: str) -> Any:
        if self._results.get(text) is self:  # which stands for a value that is being computed
            raise UserError(f"{text}: must not depend on its own value")
        if text not in self._results:
            self._results[text] = self
            self._results[text] = evaluate(text[1:], self)
        return self._results[text]

    def _field(self, name: str) -> Any:
        if name == "seed":
            raise UserError("must not use seed, because each cell runs once per seed")
        with contextlib.suppress(LookupError):
            return value_at(self.facts, name.split("."))
        try:
            return field_value(self.tree, name)
        except LookupError:
            near = near_field(name, {*self.labels, *_ROUTE, "B", "N", *self.facts})
            raise UserError(f"unknown name {name!r}{near}") from None

    def _route(self, name: str) -> Any:
        route = routes_of(self.tree.get("routes") or [{}])[0]
        if name == "rate":
            return self.settled(route.get("rate", RouteSpec.rate))
        if not {"start", "end"} <= route.keys():
            raise UserError(f"{name!r} requires a route. Try an axis `route`.")
        if name == "length":
            return self._route("end") - self._route("start") + 1
        return block_index(self.settled(route[name]), self("B"))
