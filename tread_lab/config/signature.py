"""The signature of a spec: a hash of its kind and of what differs from the kind's defaults."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from typing import Any, cast

from tread_lab.config.decode import fields_of
from tread_lab.config.run import RunSpec

_MEMO = "_signature"  # beside the fields of a frozen spec, which cannot change under it


def signature(spec: Any) -> str:
    """Return 16 hexadecimal digits that name a spec; equal for equal specs on any machine.

    A later field whose default changes nothing keeps the names of runs. What is declared by
    `unhashed` is left out.
    """
    if _MEMO not in vars(spec):
        object.__setattr__(spec, _MEMO, _sha(_said(spec)))
    return str(vars(spec)[_MEMO])


def settings_signature(spec: RunSpec) -> str:
    """Return the digits that all seeds of a cell share: the signature without any seed."""
    return _sha(_said(spec, of_seeds=False))


def _sha(tree: Any) -> str:
    text = json.dumps(tree, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _said(value: Any, *, of_seeds: bool = True) -> Any:
    """Return the tree of what a spec says beyond its defaults."""
    if isinstance(value, tuple | list):
        return [_said(item, of_seeds=of_seeds) for item in value]
    if not dataclasses.is_dataclass(value):
        return value
    tree, defaults = dict[str, Any](), fields_of(cast(Any, type(value)))
    for field in dataclasses.fields(value):
        is_seed = field.name == "seed" and isinstance(value, RunSpec)
        if field.metadata.get("unhashed") or (is_seed and not of_seeds):
            continue
        own, default = getattr(value, field.name), defaults[field.name].default
        is_part = dataclasses.is_dataclass(own)
        if field.name == "kind" or is_part or own != default:
            said = _said(own, of_seeds=of_seeds)
            tree |= {} if said == {} and type(own) is type(default) else {field.name: said}
    return tree
