"""Small expressions over the fields of a cell, such as `start == 0 or end == B-4`; no code runs."""

from __future__ import annotations

import ast
import functools
import operator
from collections.abc import Callable
from typing import Any

from tread_lab.spec.errors import UserError

Lookup = Callable[[str], Any]

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
_UNARY: dict[type, Callable[[Any], Any]] = {ast.Not: operator.not_, ast.USub: operator.neg}


def evaluate(text: str, lookup: Lookup) -> Any:
    """The value of `text`; names, dotted ones too, are asked of `lookup`.

    Raises:
        UserError: not an expression, an unknown name, or operands that do not go together.
    """
    try:
        return _value(_parsed(text), lookup)
    except (TypeError, ZeroDivisionError, OverflowError) as error:
        raise UserError(f"cannot evaluate {text!r}: {error}") from None


@functools.cache
def _parsed(text: str) -> ast.expr:
    try:
        return ast.parse(text.strip(), mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        example = "write e.g. 'start < end and rate >= 0.5'"
        raise UserError(f"{text!r} is not an expression; {example}") from None


def _value(node: ast.expr, lookup: Lookup) -> Any:
    match node:
        case ast.Constant(value=value) if isinstance(value, bool | int | float | str):
            return value
        case ast.Name() | ast.Attribute():
            return lookup(ast.unparse(node))
        case ast.List(elts=items) | ast.Tuple(elts=items):
            return [_value(item, lookup) for item in items]
        case ast.BoolOp(op=ast.And(), values=parts):
            return all(_value(part, lookup) for part in parts)
        case ast.BoolOp(values=parts):
            return any(_value(part, lookup) for part in parts)
        case ast.UnaryOp(op=op, operand=part) if type(op) in _UNARY:
            return _UNARY[type(op)](_value(part, lookup))
        case ast.BinOp(left=left, op=op, right=right) if type(op) in _BINARY:
            return _BINARY[type(op)](_value(left, lookup), _value(right, lookup))
        case ast.Compare(left=left, ops=ops, comparators=others):
            values = [_value(part, lookup) for part in (left, *others)]
            pairs = zip(ops, values, values[1:])
            return all(_COMPARE[type(op)](a, b) for op, a, b in pairs if type(op) in _COMPARE)
    raise UserError(f"{ast.unparse(node)!r} is not allowed here; compare fields and numbers")
