"""Named kinds: built-in entries, and those that other installed packages add by entry points.

Backbones, selections, metrics, solvers, sources, schedules and systems are kinds. A package adds an
entry by an entry point in the group of the kind, under the name that specs use:

    [project.entry-points."tread_lab.selections"]
    columns = "my_package.tread:COLUMNS"

docs/add_your_own.md says what the entry point of each group refers to. `code` and `cost` are
references such as `"my_package.columns:keep"`, imported when a run needs them, so that plans and
results are read without torch; only the package of a name that a spec uses is imported.

The code of a kind is a table beside the built-in code, by the same names:

    SELECTIONS = specs.routes.SELECTIONS.code({"random": _random, ...})
"""

from __future__ import annotations

import dataclasses
import functools
import importlib
import typing
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar, cast

from tread_lab.specs.errors import UserError, first_line

Facts = TypeVar("Facts")
Code = TypeVar("Code")


@dataclass(frozen=True, order=True)
class Extension:
    """An entry point of an installed package; its name is known without importing the package."""

    group: str
    name: str
    distribution: str
    version: str
    reference: str

    def load(self, reference: str = "") -> object:
        """Import the object of the entry point, or of another reference of the same package.

        Raises:
            UserError: it cannot be imported; names the package.
        """
        module, _, attribute = (reference or self.reference).partition(":")
        try:
            return functools.reduce(getattr, attribute.split("."), importlib.import_module(module))
        except Exception as error:
            raise self.broken(f"{type(error).__name__}: {first_line(error)}") from error

    def broken(self, reason: str) -> UserError:
        """Return the error of an entry that cannot be used."""
        return UserError(
            f"{self.group}: {self.name!r} of the package {self.distribution} {self.version} cannot"
            f" be used: {reason}"
        )


class Kind(Mapping[str, Facts]):
    """The names of one kind, each with the facts that specs need of it.

    Args:
        noun: `solver` for the entry points of the group `tread_lab.solvers`.
        built_in: the entries of this package.
        facts: the class of the facts; `None` for a kind whose names have no facts.
    """

    def __init__(
        self, noun: str, built_in: Mapping[str, Facts], facts: type[Facts] | None = None
    ) -> None:
        self.group, self.built_in, self.facts = f"tread_lab.{noun}s", dict(built_in), facts

    def __getitem__(self, name: str) -> Facts:
        return self.built_in[name] if name in self.built_in else self._facts(self.extensions[name])

    def __contains__(self, name: object) -> bool:
        return name in self.built_in or name in self.extensions

    def __iter__(self) -> Iterator[str]:
        return iter((*self.built_in, *self.extensions))

    def __len__(self) -> int:
        return len(self.built_in) + len(self.extensions)

    @property
    def extensions(self) -> Mapping[str, Extension]:
        """The entries of other packages by name.

        Raises:
            UserError: a package adds a name that is built in, or that another package adds too.
        """
        by_name: dict[str, Extension] = {}
        for extension in installed(self.group):
            other = by_name.setdefault(extension.name, extension)
            if extension.name in self.built_in:
                raise extension.broken("tread-lab has a built-in entry of this name")
            if other is not extension:
                raise extension.broken(f"the package {other.distribution} adds this name too")
        return by_name

    def code(self, built_in: Mapping[str, Code], field: str = "code") -> Mapping[str, Code]:
        """Return the table of the code of every name.

        Args:
            built_in: the code of the built-in names.
            field: the field of the facts that refers to the code of an extension.
        """
        return _CodeTable(self, built_in, field)

    def _facts(self, extension: Extension) -> Facts:
        facts = extension.load()
        if self.facts is not None and not isinstance(facts, self.facts):
            raise extension.broken(f"{extension.reference} is no {self.facts.__name__}")
        return cast(Facts, facts)


class _CodeTable(Kind[Code]):
    """The code of the names of a kind."""

    def __init__(self, kind: Kind[Any], built_in: Mapping[str, Code], field: str) -> None:
        self.kind, self.built_in, self.group, self.field = kind, dict(built_in), kind.group, field

    def _facts(self, extension: Extension) -> Code:
        facts = self.kind[extension.name]
        if self.kind.facts is None:
            return cast(Code, facts)
        if not (reference := getattr(facts, self.field)):
            raise extension.broken(f"its field {self.field!r} refers to no code")
        return cast(Code, extension.load(reference))


@functools.cache
def installed(group: str) -> tuple[Extension, ...]:
    """Return the entry points of a group, sorted by name; imports none of them."""
    from importlib.metadata import entry_points  # 0.2 s, and most commands need no extension

    return tuple(
        sorted(
            Extension(group, p.name, p.dist.metadata["Name"], p.dist.version, p.value)
            for p in entry_points(group=group)
            if p.dist is not None
        )
    )


def extensions_of(spec: object) -> tuple[tuple[str, str, str, str], ...]:
    """Return (group, name, distribution, version) of every extension that a spec names, sorted.

    Raises:
        UserError: an installed package adds a name that is built in or added twice.
    """
    return tuple(sorted({(e.group, e.name, e.distribution, e.version) for e in _named(spec)}))


def _named(spec: object) -> Iterator[Extension]:
    if isinstance(spec, tuple):
        for item in spec:
            yield from _named(item)
    elif dataclasses.is_dataclass(spec) and not isinstance(spec, type):
        if isinstance(own := getattr(spec, "extension", None), Extension):
            yield own
        kinds = kinds_of_fields(type(spec))
        for field in dataclasses.fields(spec):
            value = getattr(spec, field.name)
            if field.name in kinds:
                extensions = kinds[field.name].extensions
                names = value if isinstance(value, tuple) else (value,)
                yield from (extensions[name] for name in names if name in extensions)
            else:
                yield from _named(value)


@functools.cache
def kinds_of_fields(cls: type) -> dict[str, Kind[Any]]:
    """Return the fields of a dataclass that hold a name of a kind, or a tuple of such names."""
    hints = typing.get_type_hints(cls, include_extras=True)
    return {name: kind for name, hint in hints.items() for kind in _kinds_in(hint)}


def _kinds_in(hint: Any) -> Iterator[Kind[Any]]:
    yield from (item for item in getattr(hint, "__metadata__", ()) if isinstance(item, Kind))
    for part in typing.get_args(hint):
        yield from _kinds_in(part)
