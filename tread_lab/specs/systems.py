"""What systems add to the spec of a run: a line for each published one; the rest is its folder."""

from __future__ import annotations

import dataclasses
import functools
import importlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Self

from tread_lab.specs.extensions import Extension, Kind

if TYPE_CHECKING:
    from tread_lab.specs.run import RunSpec


@dataclass(frozen=True)
class JoinedBy:
    """Where a system is, and by which fields of a run it is asked for.

    Attributes:
        package: the folder, as it is imported. Its module `spec` has the classes; its module
            `system` has `SYSTEM`, which derives from `engine.system.System`.
        classes: field of a run (`bypass`, `loss`, `repa`, `captions`) -> the class that may stand
            in it. Those of another package have a `kind` of their own.
    """

    package: str
    classes: Mapping[str, str]


# The systems beside TREAD in the order in which they join a step; those of packages come after.
_PUBLISHED: dict[str, dict[str, str]] = {
    "maskdit": {"bypass": "MaskBypass"},
    "mdt": {"bypass": "MdtBypass", "loss": "BothLoss"},
    "sprint": {"bypass": "SprintBypass"},
    "sd_dit": {"loss": "DiscriminationLoss"},
    "text_to_image": {"captions": "CaptionSpec"},
    "repa": {"repa": "RepaSpec"},
}
SYSTEMS = Kind(
    "system",
    {name: JoinedBy(f"tread_lab.systems.{name}", own) for name, own in _PUBLISHED.items()},
    JoinedBy,
)


def load(system: str, module: str, attribute: str) -> Any:
    """Return what a module of a system's folder holds.

    Raises:
        UserError: it is another package's, and cannot be imported; names the package.
    """
    where = f"{SYSTEMS[system].package}.{module}"
    if system in SYSTEMS.built_in:
        return getattr(importlib.import_module(where), attribute)
    return SYSTEMS.extensions[system].load(f"{where}:{attribute}")


class SystemSpec:
    """What a run says of a system that joins it; a frozen dataclass derives from it.

    Attributes:
        system: the name of the system; empty for what is TREAD's own.
        extension: the entry of the package that added the system, if one did.
        in_label: whether the label of a run names it.
    """

    system: ClassVar[str] = ""
    extension: ClassVar[Extension | None] = None
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

    def for_kind(self, kind: Any) -> tuple[type[SystemSpec], ...]:
        """Return the classes of this package, and those of others for a kind that is none of it.

        Raises:
            UserError: a package that adds a system cannot be used.
        """
        ours = kind is None or any(kind == getattr(cls, "kind", None) for cls in self.classes)
        return self.classes if ours else (*self.classes, *self.added)

    @functools.cached_property
    def classes(self) -> tuple[type[SystemSpec], ...]:
        """The classes of this package, imported when the first tree is decoded."""
        return (*self.own, *self._joining(SYSTEMS.built_in))

    @property
    def added(self) -> tuple[type[SystemSpec], ...]:
        """The classes that other packages add."""
        return tuple(self._joining(SYSTEMS.extensions))

    def _joining(self, systems: Mapping[str, object]) -> Iterator[type[SystemSpec]]:
        for name in systems:
            if attribute := SYSTEMS[name].classes.get(self.field):
                cls = load(name, "spec", attribute)
                if extension := SYSTEMS.extensions.get(name):
                    _check(extension, cls)
                    cls.system, cls.extension = name, extension
                yield cls


def _check(extension: Extension, cls: Any) -> None:
    """Check the class of another package."""
    frozen = dataclasses.is_dataclass(cls) and getattr(cls, "__dataclass_params__").frozen  # noqa: B009
    if not (isinstance(cls, type) and issubclass(cls, SystemSpec) and frozen):
        raise extension.broken(f"{cls!r} is no frozen dataclass that derives from SystemSpec")
    if not isinstance(getattr(cls, "kind", None), str):
        raise extension.broken(f"{cls.__name__} has no field `kind` that names it")
