"""Expressions of a sweep file over the fields of a run: `where: start < end`, `=B-4`."""

from __future__ import annotations

import ast
import contextlib
import functools
from collections.abc import Callable, Mapping
from types import CodeType
from typing import Any

from tread_lab.specs.cell import Cell, is_computed, labelled
from tread_lab.specs.decode import decode_field
from tread_lab.specs.errors import UserError, shown
from tread_lab.specs.fields import field_value, near_field, routes_of, value_at
from tread_lab.specs.model import ModelSpec
from tread_lab.specs.routes import RouteSpec, block_index
from tread_lab.specs.run import RunSpec

Lookup = Callable[[str], Any]

_FUNCTIONS: dict[str, Callable[..., Any]] = {"min": min, "max": max, "round": round}
_ALLOWED = (
    *(ast.Expression, ast.Name, ast.Load, ast.List, ast.BoolOp, ast.boolop, ast.Compare),
    *(ast.cmpop, ast.UnaryOp, ast.Not, ast.USub, ast.BinOp, ast.Add, ast.Sub, ast.Mult, ast.Div),
    *(ast.FloorDiv, ast.Mod),
)
_ROUTE = ("start", "end", "length", "rate")


def evaluate(text: str, lookup: Lookup) -> Any:
    """Return the value of `text`; `lookup` gives the values of names, dotted ones too.

    It may contain numbers, texts, lists, `+ - * / // %`, comparisons, `in`, `and`, `or`, `not`,
    and the functions `min`, `max` and `round` (to a whole number).

    Raises:
        UserError: not an expression, an unknown name, or operands that do not go together.
    """
    try:
        return eval(_compiled(text), {"__builtins__": {}}, _Names(lookup))  # checked node by node
    except UserError:
        raise
    except (TypeError, ValueError, ZeroDivisionError, OverflowError) as error:
        raise UserError(f"cannot evaluate {shown(text)}: {error}") from None


class _Names(dict[str, Any]):
    """Names as `eval` asks for them."""

    def __init__(self, lookup: Lookup) -> None:
        super().__init__(_FUNCTIONS)
        self._lookup = lookup

    def __missing__(self, name: str) -> Any:
        return self._lookup(name)


class _Dotted(ast.NodeTransformer):
    """Makes a name of `train.lr`, and refuses what an expression may not contain."""

    def visit_Attribute(self, node: ast.Attribute) -> ast.Name:
        return ast.copy_location(ast.Name(ast.unparse(node), ast.Load()), node)

    def visit_Tuple(self, node: ast.Tuple) -> ast.AST:
        return self.generic_visit(ast.copy_location(ast.List(node.elts, ast.Load()), node))

    def visit_Constant(self, node: ast.Constant) -> ast.Constant:
        return node if isinstance(node.value, bool | int | float | str) else self._refused(node)

    def visit_Call(self, node: ast.Call) -> ast.AST:
        named = isinstance(node.func, ast.Name) and node.func.id in _FUNCTIONS
        return super().generic_visit(node) if named and node.args else self._refused(node)

    def visit_BinOp(self, node: ast.BinOp) -> ast.AST:
        for part in (node.left, node.right):
            text = isinstance(part, ast.Constant) and isinstance(part.value, str)
            if text or isinstance(part, ast.List | ast.Tuple):
                self._refused(part)  # numbers alone are computed
        return self.generic_visit(node)

    def generic_visit(self, node: ast.AST) -> ast.AST:
        return super().generic_visit(node) if isinstance(node, _ALLOWED) else self._refused(node)

    def _refused(self, node: ast.AST) -> Any:
        what = shown(ast.unparse(node))
        raise UserError(f"{what} is not allowed here; compare fields and numbers")


@functools.lru_cache(maxsize=1024)
def _compiled(text: str) -> CodeType:
    """Return the code of `text`.

    Raises:
        UserError: not an expression, or one with more than fields and numbers.
    """
    try:
        tree = _Dotted().visit(ast.parse(text.strip(), mode="eval"))
        return compile(tree, "expression", "eval")
    except UserError:
        raise
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        example = "write e.g. 'start < end and rate >= 0.5'"
        raise UserError(f"{shown(text)} is not an expression; {example}") from None


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
