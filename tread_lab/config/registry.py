"""Registries: one table from name to entry per kind, which modules of your own may add to."""

from __future__ import annotations

import dataclasses
import functools
import importlib
import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Self, TypeVar

from tread_lab.config.errors import UserError, first_line, suggest

if TYPE_CHECKING:
    from tread_lab.config.run import RunSpec

Entry = TypeVar("Entry")
Added = TypeVar("Added")


class Registry(dict[str, Entry]):
    """The names of one kind, each with its entry.

    Args:
        noun: name of the kind in errors.
        built_in: the entries of this package.
        facts: for a registry of code, the registry of its spec properties.
    """

    def __init__(
        self, noun: str, built_in: Mapping[str, Entry], facts: Registry[Any] | None = None
    ) -> None:
        super().__init__(built_in)
        self.noun, self.built_in, self._facts = noun, dict(built_in), facts

    def __call__(self, name: str) -> None:
        """Refuse a name that no entry has, as the type of a field declares it."""
        if name not in self:
            raise UserError(f"unknown {self.noun} {name!r}{suggest(name, self)}")

    def register(self, name: str, facts: object = None) -> Callable[[Added], Added]:
        """Return a decorator that adds what it decorates under a name.

        Args:
            facts: its spec properties, if the kind has them.

        Raises:
            UserError: the name is built in.
        """
        if name in self.built_in:
            raise UserError(
                f"{self.noun}: must be a new name, got the built-in {name!r}. Try another."
            )

        def add(entry: Any) -> Any:
            if self._facts is not None:
                self._facts.register(name)(facts)
            self[name] = entry
            return entry

        return add


def import_plugins(names: Iterable[str]) -> None:
    """Import modules that register entries, from the current folder or the Python path.

    Raises:
        UserError: names the module that cannot be imported.
    """
    for name in names:
        if (here := str(Path.cwd())) not in sys.path:
            sys.path.append(here)
        try:
            importlib.import_module(name)
        except Exception as error:
            reason = f"{type(error).__name__}: {first_line(error)}"
            raise UserError(f"plugins: cannot import {name!r}: {reason}") from error


@dataclass(frozen=True)
class JoinedBy:
    """Location of a system, and the fields of a run that request it.

    Attributes:
        package: import path of the folder. Its module `spec` has the classes; the module with the
            name of the folder has `SYSTEM`, which derives from `train.joining.System`.
        classes: field of a run (`bypass`, `loss`, `repa`, `captions`) -> its class. Each class
            names its system; those of plugins have their own `kind`.
    """

    package: str
    classes: Mapping[str, str]


# The systems beside TREAD in the order in which they join a step; those of plugins come after.
_PUBLISHED: dict[str, dict[str, str]] = {
    "maskdit": {"bypass": "MaskBypass"},
    "mdt": {"bypass": "MdtBypass", "loss": "BothLoss"},
    "sprint": {"bypass": "SprintBypass"},
    "sd_dit": {"loss": "DiscriminationLoss"},
    "text_to_image": {"captions": "CaptionSpec"},
    "repa": {"repa": "RepaSpec"},
}
SYSTEMS = Registry(
    "system",
    {name: JoinedBy(f"tread_lab.methods.{name}", own) for name, own in _PUBLISHED.items()},
)


def load(system: str, attribute: str, module: str | None = None) -> Any:
    """Return a member of a module in a system's folder, by default the module with its name."""
    package = SYSTEMS[system].package
    module = module or package.rpartition(".")[2]
    return getattr(importlib.import_module(f"{package}.{module}"), attribute)


class SystemSpec:
    """Base of the spec of a system; subclasses are frozen dataclasses.

    Attributes:
        system: the name of the system; empty for TREAD itself.
        in_label: whether run labels name the system.
    """

    system: ClassVar[str] = ""
    in_label: ClassVar[bool] = True

    @classmethod
    def of(cls, run: RunSpec) -> Self:
        """Return what a run that has it says."""
        (part,) = (part for part in run.systems.values() if isinstance(part, cls))
        return part

    def resolved(self, run: RunSpec) -> Self:
        """Return the spec with all values that depend on the rest of the run.

        Raises:
            UserError: not possible in this run.
        """
        return self

    def without_folders(self) -> Self:
        """Return the spec without machine-specific paths."""
        fields = dataclasses.fields(self)  # type: ignore[arg-type]
        unhashed = {f.name: f.default for f in fields if f.metadata.get("unhashed")}
        return dataclasses.replace(self, **unhashed)  # type: ignore[type-var]


class ConditionSpec(SystemSpec):
    """Condition in place of a class: tokens beside the image tokens in every block.

    Attributes:
        tokens: number of tokens.
    """

    tokens: int

    @property
    def width(self) -> int:
        """Width of a token before the network's projection."""
        raise NotImplementedError


class Variants:
    """The classes of a field of a run: TREAD's own, and those of the systems.

    Annotates the field's type, the common base class. `kind` selects one; the first is the default.
    """

    def __init__(self, field: str, *own: type[SystemSpec]) -> None:
        self.field, self.own = field, own

    @property
    def classes(self) -> tuple[type[SystemSpec], ...]:
        """The classes, imported when the first tree is decoded."""
        return (*self.own, *_joining(self.field, tuple(SYSTEMS)))


@functools.cache
def _joining(field: str, systems: tuple[str, ...]) -> tuple[type[SystemSpec], ...]:
    """Return the classes of systems that may stand in a field of a run."""
    named = ((name, SYSTEMS[name].classes.get(field)) for name in systems)
    return tuple(load(name, attribute, "spec") for name, attribute in named if attribute)
