"""What published systems add to the spec of a run: a line for each; the rest is in its folder."""

from __future__ import annotations

import dataclasses
import functools
import importlib
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar, Self

if TYPE_CHECKING:
    from tread_lab.specs.run import RunSpec

# The systems beside TREAD in the order in which they join a step: name -> the classes in its module
# `tread_lab.systems.<name>.spec`, by the field of a run that they may stand in.
SYSTEMS: dict[str, dict[str, str]] = {
    "maskdit": {"bypass": "MaskBypass"},
    "mdt": {"bypass": "MdtBypass", "loss": "BothLoss"},
    "sprint": {"bypass": "SprintBypass"},
    "sd_dit": {"loss": "DiscriminationLoss"},
    "text_to_image": {"captions": "CaptionSpec"},
    "repa": {"repa": "RepaSpec"},
}


class SystemSpec:
    """What a run says of a system that joins it; a frozen dataclass derives from it.

    Attributes:
        system: the name of the system; empty for what is TREAD's own.
        in_label: whether the label of a run names it.
    """

    system: ClassVar[str] = ""
    in_label: ClassVar[bool] = True

    @classmethod
    def of(cls, run: RunSpec) -> Self:
        """Return what a run that has it says."""
        (part,) = (part for part in run.systems.values() if isinstance(part, cls))
        return part

    def resolved(self, run: RunSpec) -> Self:
        """Return it with all that depends on the rest of the run written out.

        Raises:
            UserError: the run cannot have it.
        """
        return self

    def without_folders(self) -> Self:
        """Return it without what is of this machine alone."""
        fields = dataclasses.fields(self)  # type: ignore[arg-type]
        unhashed = {f.name: f.default for f in fields if f.metadata.get("unhashed")}
        return dataclasses.replace(self, **unhashed)  # type: ignore[type-var]

    @staticmethod
    def with_old_meaning(tree: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return the recorded tree with what an earlier version left unsaid."""
        return tree


class ConditionSpec(SystemSpec):
    """What a network sees in place of a class: tokens beside those of the image, in every block.

    Attributes:
        tokens: how many they are.
    """

    tokens: int

    @property
    def width(self) -> int:
        """The width of a token before the network maps it to its own."""
        raise NotImplementedError


class Variants:
    """The classes that may stand in a field of a run: TREAD's own, and those of the systems.

    It annotates the field's type, which is what all of them derive from. Several are told apart by
    their `kind`; the first is meant where none is written.
    """

    def __init__(self, field: str, *own: type[SystemSpec]) -> None:
        self.field, self.own = field, own

    def of_kind(self, kind: Any) -> type[SystemSpec] | None:
        """Return the class of a kind, `None` for a kind that is not here."""
        return next((cls for cls in self.classes if getattr(cls, "kind", None) == kind), None)

    @functools.cached_property
    def classes(self) -> tuple[type[SystemSpec], ...]:
        """The classes, imported when the first tree is decoded."""
        joined = (
            getattr(importlib.import_module(f"tread_lab.systems.{system}.spec"), adds[self.field])
            for system, adds in SYSTEMS.items()
            if self.field in adds
        )
        return (*self.own, *joined)
