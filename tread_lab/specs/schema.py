"""JSON schemas of sweep and experiment files, made from the dataclasses that decode them."""

from __future__ import annotations

import dataclasses
import inspect
import json
import re
import types
from collections.abc import Callable, Iterator, Mapping
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from tread_lab.specs.decode import fields_of
from tread_lab.specs.errors import lookup
from tread_lab.specs.run import RunSpec
from tread_lab.specs.sweep import Experiment, SweepSpec
from tread_lab.specs.systems import Variants

DRAFT = "https://json-schema.org/draft/2020-12/schema"

Tree = dict[str, Any]

_SCALARS: dict[Any, str] = {int: "integer", float: "number", str: "string", bool: "boolean"}
_COMPUTED = {"type": "string", "pattern": "^="}
_DOTTED = r"^[A-Za-z_]\w*(\.\w+)+$"


def schema_text(kind: str) -> str:
    """Return the schema of a kind of files as text.

    It is for editors, which complete keys and the names among values, and show what they mean.
    Whether a value is possible is said where it is decoded.

    Raises:
        UserError: the kind is neither `sweep` nor `experiment`.
    """
    return json.dumps(lookup(KINDS, kind, "schema")(), indent=1) + "\n"


def _experiment() -> Tree:
    """Return the schema of a base run, its sampler, its evaluations and its `defaults`."""
    parts = _Parts()
    said = parts.properties(Experiment)
    own = {name: said[name] for name in ("sampler", "evaluate", "reference")}
    own |= {"question": {"type": "string"}, "defaults": {"type": "array"}, "then": parts.fields()}
    return _whole("A base run of tread-lab", {**own, **parts.properties(RunSpec)}, parts)


def _sweep() -> Tree:
    """Return the schema of a sweep file, in which many keys hold fields of a run."""
    parts = _Parts()
    properties, fields = parts.properties(SweepSpec), parts.fields()
    named = parts.definitions["fields"]["properties"]
    axes = {"properties": {name: _said(schema) for name, schema in named.items()} | {"zip": {}}}
    for name, inside in {
        "fixed": fields,
        "baseline": fields,
        "variants": {"additionalProperties": {"additionalProperties": fields}},
        "axes": {**axes, "items": axes},
        "trials": {"items": fields},
    }.items():
        properties[name] |= inside
    return _whole("A sweep of tread-lab", properties, parts)


def _whole(title: str, properties: Tree, parts: _Parts) -> Tree:
    tree: Tree = {"$schema": DRAFT, "title": title, "type": "object", "properties": properties}
    return {**tree, "additionalProperties": False, "$defs": dict(sorted(parts.definitions.items()))}


class _Parts:
    """The dataclasses in a schema, each defined once."""

    def __init__(self) -> None:
        self.definitions: dict[str, Tree] = {}

    def of(self, hint: Any) -> Tree:
        """Return the schema of a type hint."""
        origin, inside = get_origin(hint), get_args(hint)
        if origin in (Union, types.UnionType):
            return {"anyOf": [self.of(option) for option in inside]}
        if origin is Literal:
            return {"enum": [*inside, *([False] if "off" in inside else [])]}
        if origin is Annotated and isinstance(inside[1], Variants):
            return {"anyOf": [self.of(option) for option in inside[1].classes]}
        if origin is Annotated:
            return {"enum": list(inside[1].built_in)}
        if origin is tuple:
            return {"type": "array", "items": self.of(inside[0])}
        if origin in (Mapping, dict) or hint in (Mapping, dict):
            return {"type": "object"}
        if dataclasses.is_dataclass(hint):
            cls: Any = hint
            return self._part(cls.__name__, lambda: self.properties(cls))
        if hint in _SCALARS:
            return {"type": _SCALARS[hint]}
        return {"type": "null"} if hint is type(None) else {}

    def fields(self) -> Tree:
        """Return the schema of some fields of a run, nested or dotted, shorthands included."""
        short = {"route": {}, "rate": {}, "then": {"$ref": "#/$defs/fields"}}
        return self._part("fields", lambda: {**short, **self.properties(RunSpec)})

    def properties(self, cls: Any) -> Tree:
        """Return a schema for every field of a dataclass, described as in its docstring."""
        properties, said = dict[str, Any](), dict(_attributes(cls))
        for name, (hint, _) in fields_of(cls).items():
            schema = self.of(hint)
            if cls is not SweepSpec and schema:
                schema = {"anyOf": [schema, _COMPUTED]}
            properties[name] = {**({"description": said[name]} if name in said else {}), **schema}
        return properties

    def _part(self, name: str, properties: Callable[[], Tree]) -> Tree:
        """Return a reference to some properties, or dotted names below them, or to no mapping."""
        if name not in self.definitions:
            self.definitions[name] = {}
            self.definitions[name] |= {
                "properties": properties(),
                "patternProperties": {_DOTTED: {}},
                "additionalProperties": False,
            }
        return {"$ref": f"#/$defs/{name}"}


def _attributes(cls: Any) -> Iterator[tuple[str, str]]:
    """Yield field and sentence from the section `Attributes:` of a docstring."""
    text = inspect.getdoc(cls) or ""
    section = text.partition("Attributes:\n")[2]
    for names, sentence in re.findall(r"^    (\w[\w, ]*): ((?:.|\n     )*)", section, flags=re.M):
        for name in names.split(", "):
            yield name, " ".join(sentence.split())


def _said(schema: Tree) -> Tree:
    return {"description": schema["description"]} if "description" in schema else {}


KINDS = {"sweep": _sweep, "experiment": _experiment}
