"""What is read from records is frozen: nobody changes it on the way to a table."""

from __future__ import annotations

import dataclasses
import importlib
import inspect
import pkgutil

from tread_lab import records


def test_every_dataclass_is_frozen() -> None:
    names = [m.name for m in pkgutil.iter_modules(records.__path__, "tread_lab.records.")]
    classes = {
        cls
        for name in names
        for cls in vars(importlib.import_module(name)).values()
        if inspect.isclass(cls) and dataclasses.is_dataclass(cls) and cls.__module__ == name
    }
    assert {c.__qualname__ for c in classes if not c.__dataclass_params__.frozen} == set()  # type: ignore[attr-defined]
