"""The dataclasses of a package that may be changed after they are made."""

from __future__ import annotations

import dataclasses
import importlib
import inspect
import pkgutil
from types import ModuleType


def not_frozen(package: ModuleType) -> set[str]:
    """Return the names of the dataclasses in the package's modules that are not frozen."""
    prefix = f"{package.__name__}."
    names = [module.name for module in pkgutil.iter_modules(package.__path__, prefix)]
    classes = {
        cls
        for name in names
        for cls in vars(importlib.import_module(name)).values()
        if inspect.isclass(cls) and dataclasses.is_dataclass(cls) and cls.__module__ == name
    }
    assert classes, f"{package.__name__} has no dataclass"
    return {c.__qualname__ for c in classes if not c.__dataclass_params__.frozen}  # type: ignore[attr-defined]
