"""JSON schemas of sweep and experiment files, made from the dataclasses that decode them."""

from __future__ import annotations

import dataclasses
import inspect
import json
import re
import types
from collections.abc import Iterator, Mapping, Sequence
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
_SHORT = {"type": ["string", "number"]}
_DOTTED = r"^[A-Za-z_]\w*(\.\w+)+$"


def schema_text(kind: str) -> str:
    """Return the schema of a kind of files as text.

    Raises:
        UserError: the kind is neither `sweep` nor `experiment`.
    """
    return json.dumps(lookup(KINDS, kind, "schema")(), indent=1) + "\n"


def _experiment() -> Tree:
    """Return the schema of a base run, its sampler, its evaluations and its `defaults`."""
    parts = _Parts(computed=False)
    said = _properties(Experiment, parts)
    own = {name: said[name] for name in ("sampler", "evaluate", "reference")}
    own |= {"question": {"type": "string"}, "defaults": {"type": "array"}, "then": parts.fields()}
    properties = {**own, **_properties(RunSpec, parts)}
    return _whole("A base run of tread-lab", properties, parts)


def _sweep() -> Tree:
    """Return the schema of a sweep file, in which many keys hold fields of a run."""
    parts = _Parts(computed=True)
    properties = _properties(SweepSpec, parts)
    fields, grid = parts.fields(), parts.grid()
    for name, schema in {
        "fixed": fields,
        "baseline": {"anyOf": [fields, {"type": "null"}]},
        "axes": {"anyOf": [grid, {"type": "array", "items": grid}]},
        "trials": {"type": "array", "items": fields},
        "variants": {
            "type": "object",
            "additionalProperties": {"type": "object", "additionalProperties": fields},
        },
        "sampler_axes": {"type": ["object", "array"]},
    }.items():
        properties[name] = {**_said(properties[name]), **schema}
    return _whole("A sweep of tread-lab", properties, parts, required=["experiment"])


def _whole(title: str, properties: Tree, parts: _Parts, required: Sequence[str] = ()) -> Tree:
    tree: Tree = {"$schema": DRAFT, "title": title, "type": "object", "properties": properties}
    tree |= {"additionalProperties": False, "required": list(required)}
    return {**tree, "$defs": dict(sorted(parts.definitions.items()))}


class _Parts:
    """The dataclasses in a schema, each defined once.

    Args:
        computed: no field is required and any value may be an `=expression`, as in sweep files.
    """

    def __init__(self, *, computed: bool) -> None:
        self.computed = computed
        self.definitions: dict[str, Tree] = {}

    def of(self, hint: Any) -> Tree:
        """Return the schema of a type hint."""
        origin, inside = get_origin(hint), get_args(hint)
        if origin in (Union, types.UnionType):
            return {"anyOf": [self.of(option) for option in inside]}
        if origin is Literal:
            return {"enum": [*inside, *([False] if "off" in inside else [])]}
        if origin is Annotated and isinstance(inside[1], Variants):
            none = (type(None),) if type(None) in get_args(inside[0]) else ()
            return {"anyOf": [self.of(option) for option in (*inside[1].classes, *none)]}
        if origin is Annotated:
            return {"enum": list(inside[1].built_in)}
        if origin is tuple:
            return self._list(inside)
        if origin in (Mapping, dict) or hint in (Mapping, dict):
            return {"type": "object"}
        if dataclasses.is_dataclass(hint):
            return self._part(hint)
        if hint in _SCALARS:
            return {"type": _SCALARS[hint]}
        return {"type": "null"} if hint is type(None) else {}

    def fields(self) -> Tree:
        """Return the schema of some fields of a run, nested or dotted, shorthands included."""
        if "fields" not in self.definitions:
            self.definitions["fields"] = {}
            run = _properties(RunSpec, self)
            short = {"route": {}, "rate": {}, "then": {"$ref": "#/$defs/fields"}}
            self.definitions["fields"] = _open({**short, **run})
        return {"$ref": "#/$defs/fields"}

    def grid(self) -> Tree:
        """Return the schema of values for some fields of a run; keys may be axes of `variants`."""
        run = {name: _said(schema) for name, schema in _properties(RunSpec, self).items()}
        run |= {"route": {}, "rate": {}, "zip": {"type": ["object", "array"]}}
        self.definitions["grid"] = {"type": "object", "properties": run}
        return {"$ref": "#/$defs/grid"}

    def _list(self, inside: tuple[Any, ...]) -> Tree:
        if len(inside) == 2 and inside[1] is Ellipsis:
            return {"type": "array", "items": self.of(inside[0])}
        items = [self.of(hint) for hint in inside]
        return {"type": "array", "prefixItems": items, "minItems": len(items), "items": False}

    def _part(self, cls: Any) -> Tree:
        name = cls.__name__
        if name not in self.definitions:
            self.definitions[name] = {}
            properties = _properties(cls, self)
            self.definitions[name] = (
                _open(properties) if self.computed else _closed(cls, properties)
            )
        part: Tree = {"$ref": f"#/$defs/{name}"}
        tagged = any(f.name == "kind" for f in dataclasses.fields(cls))
        shorthand = tagged or hasattr(cls, "from_shorthand") or name == "InitSpec"
        return {"anyOf": [part, _SHORT]} if shorthand else part


def _properties(cls: Any, parts: _Parts) -> Tree:
    """Return a schema for every field of a dataclass, described as in its docstring."""
    properties, said = dict[str, Any](), dict(_attributes(cls))
    for name, (hint, _) in fields_of(cls).items():
        schema = parts.of(hint)
        if parts.computed and cls is not SweepSpec and schema:
            schema = {"anyOf": [schema, _COMPUTED]}
        properties[name] = {**({"description": said[name]} if name in said else {}), **schema}
    return properties


def _attributes(cls: Any) -> Iterator[tuple[str, str]]:
    """Yield field and sentence from the section `Attributes:` of a docstring."""
    text = inspect.getdoc(cls) or ""
    section = text.partition("Attributes:\n")[2]
    for names, sentence in re.findall(r"^    (\w[\w, ]*): ((?:.|\n     )*)", section, flags=re.M):
        for name in names.split(", "):
            yield name, " ".join(sentence.split())


def _closed(cls: Any, properties: Tree) -> Tree:
    required = [name for name, (_, required) in fields_of(cls).items() if required]
    tree = {"type": "object", "properties": properties, "additionalProperties": False}
    return {**tree, "required": required}


def _open(properties: Tree) -> Tree:
    """Return the schema of some of the properties, or of dotted names below them."""
    tree = {"type": "object", "properties": properties, "patternProperties": {_DOTTED: {}}}
    return {**tree, "additionalProperties": False}


def _said(schema: Tree) -> Tree:
    return {"description": schema["description"]} if "description" in schema else {}


KINDS = {"sweep": _sweep, "experiment": _experiment}
