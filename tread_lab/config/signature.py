"""The signature of a spec: a hash of its kind and of what differs from the kind's defaults."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from typing import Any, cast

from tread_lab.config.decode import fields_of

_MEMO = "_signature"  # beside the fields of a frozen spec, which cannot change under it


def signature(spec: Any) -> str:
    """Return 16 hexadecimal digits that name a spec; equal for equal specs on any machine.

    A later field whose default changes nothing keeps the names of runs. What is declared by
    `unhashed` is left out.
    """
    if _MEMO not in vars(spec):
        object.__setattr__(spec, _MEMO, _sha(_said(spec)))
    return str(vars(spec)[_MEMO])


def _sha(tree: Any) -> str:
    text = json.dumps(tree, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _said(value: Any) -> Any:
    """Return the tree of what a spec says beyond its defaults."""
    if isinstance(value, tuple | list):
        return [_said(item) for item in value]
    if not dataclasses.is_dataclass(value):
        return value
    tree, defaults = dict[str, Any](), fields_of(cast(Any, type(value)))
    for field in dataclasses.fields(value):
        own, default = getattr(value, field.name), defaults[field.name].default
        is_usual = own == default and field.name != "kind" and not dataclasses.is_dataclass(own)
        if is_usual or field.metadata.get("unhashed"):
            continue
        said = _said(own)
        tree |= {} if said == {} and type(own) is type(default) else {field.name: said}
    return tree
