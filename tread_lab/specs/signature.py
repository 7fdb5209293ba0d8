"""The signature of a spec: a hash of what decides the result, and the one list of what does not."""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import json
from typing import Any, cast, get_args

from tread_lab.specs.decode import defaults_of_added, encode, fields_of
from tread_lab.specs.run import RunSpec
from tread_lab.specs.systems import Variants

# Dotted paths left out of every signature: they change where and how a run is executed, never what
# is learned. Fields that are declared by `unhashed` are left out, too. The device count belongs to
# the executor and is in no spec at all.
UNHASHED = ("execution", "data.path", "data.deviation", "reference.path")

_MEMO = "_canonical"  # beside the fields of a frozen spec, which cannot change under it


def signature(*specs: Any) -> str:
    """Return 16 hexadecimal digits that name the specs; equal for equal specs on any machine."""
    text = ",".join(_spec_text(spec) for spec in specs)
    return hashlib.sha256(f"[{text}]".encode()).hexdigest()[:16]


@functools.cache
def unhashed() -> tuple[str, ...]:
    """Return the dotted paths that no signature has."""
    more = (
        f"{name}.{field.name}"
        for name, (hint, _) in fields_of(RunSpec).items()
        for variants in get_args(hint)[1:]
        if isinstance(variants, Variants)
        for cls in variants.classes
        for field in dataclasses.fields(cast(Any, cls))
        if field.metadata.get("unhashed")
    )
    return (*UNHASHED, *more)


def _spec_text(spec: Any) -> str:
    """Return the canonical JSON of a spec or of its plain tree, without what is not science."""
    if dataclasses.is_dataclass(spec) and not isinstance(spec, type):
        return _text(spec, unhashed())
    if not isinstance(spec, dict):
        return _json(encode(spec))
    tree = dict(spec)
    for dotted in unhashed():
        head, _, leaf = dotted.partition(".")
        if not leaf:
            tree.pop(head, None)
        elif isinstance(tree.get(head), dict):
            tree[head] = {key: value for key, value in tree[head].items() if key != leaf}
    if isinstance(start := tree.get("init_from"), dict):
        tree["init_from"] = _start(*map(start.get, _START))
    return _json(encode(tree))


def _text(value: Any, left_out: tuple[str, ...] = ()) -> str:
    """Return the JSON of a value, kept with every dataclass in it: specs share most parts.

    Args:
        left_out: dotted fields below this value.
    """
    if type(value) is int:
        return str(value)
    if not hasattr(value, "__dataclass_fields__"):
        if isinstance(value, tuple) and value:
            return f"[{','.join(map(_text, value))}]"
        return _json(encode(value))
    memo = vars(value).get(_MEMO)
    if memo is None or memo[0] != left_out:
        names = _members(cast(Any, type(value)), left_out)
        silent = defaults_of_added(cast(Any, type(value)))
        counted = [n for n in names if n[0] not in silent or getattr(value, n[0]) != silent[n[0]]]
        members = ",".join([_member(value, name, below) for name, below in counted])
        memo = left_out, f"{{{members}}}"
        object.__setattr__(value, _MEMO, memo)
    return str(memo[1])


@functools.cache
def _members(cls: Any, left_out: tuple[str, ...]) -> list[tuple[str, tuple[str, ...]]]:
    """Return the fields of a dataclass that count, sorted, each with what is left out below."""
    below = [dotted.partition(".") for dotted in left_out]
    dropped = {head for head, _, leaf in below if not leaf}
    dropped |= {f.name for f in dataclasses.fields(cls) if f.metadata.get("unhashed")}
    names = sorted(f.name for f in dataclasses.fields(cls) if f.name not in dropped)
    return [(name, tuple(leaf for head, _, leaf in below if head == name)) for name in names]


def _member(value: Any, name: str, left_out: tuple[str, ...]) -> str:
    item = getattr(value, name)
    if name == "init_from" and item is not None:
        item = _start(*(getattr(item, field) for field in _START))
    return f'"{name}":{_text(item, left_out)}'


_START = ("run", "digest", "weights", "published_as")


def _start(
    run: Any, digest: str | None, weights: str | None, published_as: str | None
) -> dict[str, Any]:
    """Return what a signature says of the weights that a run starts from."""
    named = {"file": digest} if run is None else {"run": signature(run)}
    said = {"weights": weights, "published_as": published_as}
    return {**named, **{field: text for field, text in said.items() if text is not None}}


_json = json.JSONEncoder(sort_keys=True, separators=(",", ":"), allow_nan=False).encode
