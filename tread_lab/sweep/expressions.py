"""Expressions of a sweep file over the fields of a run: `where: start < end`, `=B-4`."""

from __future__ import annotations

import ast
import contextlib
import functools
import math
import operator
import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from tread_lab.specs.cell import Cell, is_computed, labelled
from tread_lab.specs.decode import decode_field
from tread_lab.specs.errors import UserError, shown
from tread_lab.specs.fields import field_value, near_field, routes_of, value_at
from tread_lab.specs.model import ModelSpec
from tread_lab.specs.routes import RouteSpec, block_index
from tread_lab.specs.run import RunSpec

Lookup = Callable[[str], Any]

LARGEST = 2**63  # of a whole number that is computed

_BINARY: dict[type, Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
}
_COMPARE: dict[type, Callable[[Any, Any], Any]] = {
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
    ast.In: lambda a, b: a in b,
    ast.NotIn: lambda a, b: a not in b,
}
_FUNCTIONS: dict[str, Callable[..., Any]] = {"min": min, "max": max, "round": round}
_REFUSED = (TypeError, ValueError, ZeroDivisionError, OverflowError, RecursionError)
_ROUTE = ("start", "end", "length", "rate")


def evaluate(text: str, lookup: Lookup) -> Any:
    """Return the value of `text`; `lookup` gives the values of names, dotted ones too.

    It may contain numbers, texts, lists, `+ - * / // %`, comparisons, `in`, `and`, `or`, `not`,
    and the functions `min`, `max` and `round` (to a whole number).

    Raises:
        UserError: not an expression, an unknown name, or operands that do not go together.
    """
    try:
        return _value(_parsed(text), lookup)
    except _REFUSED as error:
        if isinstance(error, UserError):
            raise
        raise UserError(f"cannot evaluate {shown(text)}: {error}") from None


@functools.lru_cache(maxsize=1024)
def _parsed(text: str) -> ast.expr:
    """Return the tree of `text`.

    Raises:
        UserError: not an expression.
    """
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return ast.parse(text.strip(), mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        example = "write e.g. 'start < end and rate >= 0.5'"
        raise UserError(f"{shown(text)} is not an expression; {example}") from None


def _value(node: ast.expr, lookup: Lookup) -> Any:
    match node:
        case ast.Constant(value=value) if isinstance(value, bool | int | float | str):
            return value
        case ast.Name() | ast.Attribute():
            return lookup(ast.unparse(node))
        case ast.List(elts=items) | ast.Tuple(elts=items):
            return [_value(item, lookup) for item in items]
        case ast.BoolOp(op=op, values=parts):
            return _decisive(parts, isinstance(op, ast.Or), lookup)
        case ast.UnaryOp(op=ast.Not(), operand=part):
            return not _value(part, lookup)
        case ast.UnaryOp(op=ast.USub(), operand=part):
            return _number(operator.neg, _value(part, lookup))
        case ast.BinOp(left=left, op=op, right=right) if type(op) in _BINARY:
            return _number(_BINARY[type(op)], _value(left, lookup), _value(right, lookup))
        case ast.Compare(left=left, ops=ops, comparators=rest) if {*map(type, ops)} <= {*_COMPARE}:
            values = [_value(part, lookup) for part in (left, *rest)]
            pairs = zip(ops, values, values[1:])
            return all(_COMPARE[type(op)](a, b) for op, a, b in pairs)
        case ast.Call(func=ast.Name(id=name), args=[_, *_] as parts, keywords=[]) if (
            name in _FUNCTIONS
        ):
            return _number(_FUNCTIONS[name], *(_value(part, lookup) for part in parts))
    raise UserError(f"{shown(ast.unparse(node))} is not allowed here; compare fields and numbers")


def _decisive(parts: Sequence[ast.expr], truth: bool, lookup: Lookup) -> Any:
    """Return the first operand with the truth that decides `and` or `or`, else the last."""
    for part in parts:
        value = _value(part, lookup)
        if bool(value) is truth:
            break
    return value


def _number(function: Callable[..., Any], *operands: Any) -> int | float:
    """Compute a number from numbers; texts and lists are compared only, so that none can grow."""
    for operand in operands:
        if not isinstance(operand, int | float):
            raise TypeError(f"{shown(str(operand))} is not a number")
    result: int | float = function(*operands)
    if not math.isfinite(result) or (isinstance(result, int) and abs(result) > LARGEST):
        raise ValueError("the result is too large")
    return result


class CellNames:
    """Names an expression may use: the cell's axes, start, end, length, rate, B, N, and any field
    of the run by its dotted name, its default where nothing sets it.

    Args:
        tree: the run's plain tree, `=expression` where a value is computed.
        facts: further names, such as what the device can do.
    """

    def __init__(
        self, tree: Mapping[str, Any], cell: Cell, facts: Mapping[str, Any] | None = None
    ) -> None:
        self.tree, self.facts, self.labels = tree, facts or {}, labelled(cell)
        self._results: dict[str, Any] = {}
        self._open: list[str] = []

    def __call__(self, name: str) -> Any:
        if name in _ROUTE:
            return self._route(name)
        if name == "B":
            return self._depth()
        if name == "N":
            data = decode_field(RunSpec, "data", self.settled(self.tree.get("data", {})))
            model = decode_field(RunSpec, "model", self.settled(self.tree.get("model", {})))
            return (data.size // model.patch) ** 2
        if name in self.labels:
            return self.settled(self.labels[name])
        return self.settled(self._field(name))

    def settled(self, value: Any) -> Any:
        """Return `value` with every `=expression` in it computed.

        Raises:
            UserError: an expression that cannot be evaluated, or that needs its own value.
        """
        if isinstance(value, Mapping):
            return {key: self.settled(item) for key, item in value.items()}
        if isinstance(value, list | tuple):
            return [self.settled(item) for item in value]
        return self._computed(value) if is_computed(value) else value

    def _computed(self, text: str) -> Any:
        if text in self._results:
            return self._results[text]
        if text in self._open:
            raise UserError(f"{' needs '.join([*self._open, text])}: a circle")
        self._open.append(text)
        self._results[text] = evaluate(text[1:], self)
        self._open.pop()
        return self._results[text]

    def _field(self, name: str) -> Any:
        if name == "seed":
            raise UserError("'seed' is no name here: every cell runs once for each of `seeds`")
        with contextlib.suppress(KeyError):
            return value_at(self.facts, name.split("."))
        try:
            return field_value(self.tree, name)
        except KeyError:
            near = near_field(name, {*self.labels, *_ROUTE, "B", "N", *self.facts})
            raise UserError(f"unknown name {name!r}{near}") from None

    def _route(self, name: str) -> Any:
        route = routes_of(self.tree.get("routes") or [{}])[0]
        if name == "rate":
            return self.settled(route.get("rate", RouteSpec.rate))
        if "start" not in route or "end" not in route:
            raise UserError(f"{name!r} needs a route; add an axis `route` or a route to the base")
        if name == "length":
            return self._route("end") - self._route("start") + 1
        return block_index(self.settled(route[name]), self._depth())

    def _depth(self) -> int:
        model = self.tree.get("model", {})
        if isinstance(model, Mapping) and type(depth := self.settled(model.get("depth"))) is int:
            return depth
        spec: ModelSpec = decode_field(RunSpec, "model", self.settled(model))
        return spec.depth
