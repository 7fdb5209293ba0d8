"""The signature of a spec: a hash of its kind and of what differs from the kind's defaults."""

from __future__ import annotations

import hashlib
import json
from typing import Any, cast

from tread_lab.config.decode import fields_of

_MEMO = "_signature"  # beside the fields of a frozen spec, which cannot change under it


def signature(spec: Any) -> str:
    """Return 16 hexadecimal digits that name a spec; equal for equal specs on any machine.

    Fields at their default are not hashed, so new fields keep existing signatures. `unhashed`
    fields are omitted.
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
    if not hasattr(value, "__dataclass_fields__"):
        return value
    tree = dict[str, Any]()
    for name, field in fields_of(cast(Any, type(value))).items():
        own = getattr(value, name)
        is_part = hasattr(own, "__dataclass_fields__")
        if field.unhashed or (own == field.default and name != "kind" and not is_part):
            continue
        said = _said(own)
        tree |= {} if said == {} and type(own) is type(field.default) else {name: said}
    return tree
