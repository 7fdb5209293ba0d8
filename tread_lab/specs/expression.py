"""Small expressions over the fields of a cell, such as `start == 0 or end == B-4`; no code runs."""

from __future__ import annotations

import ast
import functools
import math
import operator
import warnings
from collections.abc import Callable
from typing import Any

from tread_lab.specs.errors import UserError, shown

Lookup = Callable[[str], Any]

LONGEST = 1_000  # characters of an expression
DEEPEST = 50  # operations inside one another
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
_REFUSED = (TypeError, ValueError, ZeroDivisionError, OverflowError)


def evaluate(text: str, lookup: Lookup) -> Any:
    """Return the value of `text`; `lookup` gives the values of names, dotted ones too.

    It may contain numbers, texts, lists, `+ - * / // %`, comparisons, `in`, `and`, `or`, `not`,
    and the functions `min`, `max` and `round` (to a whole number).

    Raises:
        UserError: not an expression, an unknown name, or operands that do not go together.
    """
    try:
        return _value(parsed(text), lookup)
    except _REFUSED as error:
        if isinstance(error, UserError):
            raise
        raise UserError(f"cannot evaluate {shown(text)}: {error}") from None


@functools.lru_cache(maxsize=1024)
def parsed(text: str) -> ast.expr:
    """Return the tree of `text`.

    Raises:
        UserError: not an expression, or one too long or too deep to be meant.
    """
    if len(text) > LONGEST:
        raise UserError(f"{shown(text)} is longer than {LONGEST} characters")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            tree = ast.parse(text.strip(), mode="eval").body
        deep = _depth(tree) > DEEPEST
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        example = "write e.g. 'start < end and rate >= 0.5'"
        raise UserError(f"{shown(text)} is not an expression; {example}") from None
    if deep:
        raise UserError(f"{shown(text)} is nested more than {DEEPEST} deep")
    return tree


def _depth(node: ast.AST) -> int:
    return 1 + max(map(_depth, ast.iter_child_nodes(node)), default=0)


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


def _number(function: Callable[..., Any], *operands: Any) -> int | float:
    """Compute a number from numbers; texts and lists are compared only, so that none can grow."""
    for operand in operands:
        if not isinstance(operand, int | float):
            raise TypeError(f"{shown(str(operand))} is not a number")
    result: int | float = function(*operands)
    if not math.isfinite(result) or (isinstance(result, int) and abs(result) > LARGEST):
        raise ValueError("the result is too large")
    return result
