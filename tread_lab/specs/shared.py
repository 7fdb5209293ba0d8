"""Many runs that share most of their parts: every distinct part of their trees is decoded once."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tread_lab.specs.decode import decode, decode_field
from tread_lab.specs.field_names import is_field
from tread_lab.specs.run import RunSpec

_ABSENT = object()


class SharedParts:
    """Decodes the trees of runs.

    Args:
        base: a tree whose parts the others have too, as the same objects: these are known without
            being looked at. It must outlive this, unchanged.
    """

    def __init__(self, base: Mapping[str, Any] | None = None) -> None:
        self._base = base or {}
        self._parts: dict[Any, Any] = {}

    def run(self, tree: Mapping[str, Any], path: str = "") -> RunSpec:
        """The run of a tree, as `decode` has it.

        Raises:
            UserError: as `decode`.
        """
        return decode(RunSpec, {name: self._part(name, v) for name, v in tree.items()}, path)

    def key(self, tree: Mapping[str, Any]) -> Any:
        """Equal for equal trees, cheap for parts of the base."""
        return tuple((name, self._mark(name, value)) for name, value in tree.items())

    def is_base(self, name: str, value: Any) -> bool:
        """Whether a part is the base's own object."""
        return value is self._base.get(name, _ABSENT)

    def _mark(self, name: str, value: Any) -> Any:
        return id(value) if self.is_base(name, value) else repr(value)

    def _part(self, name: str, value: Any) -> Any:
        if not is_field(name):
            return value
        key = name, self._mark(name, value)
        if key not in self._parts:
            self._parts[key] = decode_field(RunSpec, name, value)
        return self._parts[key]
