"""The signature of a spec: a hash of what decides the result, and the one list of what does not."""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import json
from collections.abc import Iterable, Mapping
from typing import Any, cast, get_args

from tread_lab.specs.decode import encode, fields_of
from tread_lab.specs.run import RunSpec
from tread_lab.specs.systems import SYSTEMS, Variants

# Dotted paths left out of every signature: they change where and how a run is executed, never what
# is learned. Fields that are declared by `unhashed` are left out, too. The device count belongs to
# the executor and is in no spec at all.
UNHASHED = ("execution", "data.path", "data.deviation", "reference.path")

_MEMO = "_signature"  # beside the fields of a frozen spec, which cannot change under it


def signature(spec: Any) -> str:
    """Return 16 hexadecimal digits that name a spec or its plain tree; equal for equal specs on any
    machine."""
    if not dataclasses.is_dataclass(spec):
        return _sha(f"[{_json(_hashed(encode(spec)))}]")
    if _MEMO not in vars(spec):
        object.__setattr__(spec, _MEMO, _sha(f"[{_json(_hashed(encode(spec, hashed=True)))}]"))
    return str(vars(spec)[_MEMO])


def settings_signature(spec: RunSpec | Mapping[str, Any]) -> str:
    """Return the digits that all seeds of a cell share: the signature without any seed."""
    tree = encode(spec, hashed=dataclasses.is_dataclass(spec))
    parent = (tree.get("init_from") or {}).get("run")
    _hashed(tree).pop("seed", None)
    if parent is not None:
        tree["init_from"]["run"] = settings_signature(parent)
    return _sha(_json(tree))


def _sha(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _leave_out(tree: dict[str, Any], names: Iterable[str]) -> None:
    for dotted in names:
        head, _, leaf = dotted.partition(".")
        if not leaf:
            tree.pop(head, None)
        elif isinstance(tree.get(head), dict):
            tree[head].pop(leaf, None)


def _hashed(tree: Any) -> Any:
    if not isinstance(tree, dict):
        return tree
    _leave_out(tree, unhashed())
    if isinstance(start := tree.get("init_from"), dict):
        named = {"file": start.get("digest")}
        if start.get("run") is not None:
            named = {"run": signature(start["run"])}
        said = {name: start.get(name) for name in ("weights", "published_as")}
        tree["init_from"] = {**named, **said}
    return tree


def unhashed() -> tuple[str, ...]:
    """Return the dotted paths that no signature has."""
    return _unhashed_with(tuple(SYSTEMS))


@functools.cache
def _unhashed_with(systems: tuple[str, ...]) -> tuple[str, ...]:
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


_json = json.JSONEncoder(sort_keys=True, separators=(",", ":"), allow_nan=False).encode
