"""The gc command offers what was not asked for, and removes only what was, with `--yes`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tread_lab.commands import gc
from tread_lab.specs.errors import UserError
from tread_lab.sweep.gc import FEATURES, SAMPLES, Removable

FILES = [
    Removable("scratch", Path("/a"), 1),
    Removable(SAMPLES, Path("/b"), 10),
    Removable(FEATURES, Path("/c"), 100),
    Removable(SAMPLES, Path("/d"), 1000),
]


@pytest.mark.parametrize(
    ("samples", "features", "chosen", "kept"),
    [
        (False, False, "a", {SAMPLES: 1010, FEATURES: 100}),
        (True, False, "abd", {FEATURES: 100}),
        (False, True, "ac", {SAMPLES: 1010}),
        (True, True, "abcd", {}),
    ],
)
@pytest.mark.parametrize("yes", [True, False])
def test_what_is_asked_for_is_removed_and_the_rest_is_offered(
    yes: bool,
    samples: bool,
    features: bool,
    chosen: str,
    kept: dict[str, int],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    calls: list[Any] = []

    def find(lab: Any, *, problems: list[UserError], **kinds: bool) -> list[Removable]:
        calls.append((lab.root, kinds))
        return FILES

    def clear(lab: Any, items: list[Removable]) -> int:
        calls.append(("clear", lab.root, [item.path.name for item in items]))
        return 7

    def show(items: list[Removable], freed: int | None, **how: Any) -> None:
        calls.append(([item.path.name for item in items], freed, how))

    monkeypatch.setattr(gc, "find", find)
    monkeypatch.setattr(gc, "clear", clear)
    monkeypatch.setattr(gc, "show_removable", show)
    root = str(tmp_path)
    assert gc.run(root=root, yes=yes, samples=samples, features=features, as_json=True) == 0
    cleared = [("clear", tmp_path, [*chosen])] if yes else []
    assert calls == [
        (tmp_path, {"samples": True, "features": True}),
        *cleared,
        ([*chosen], 7 if yes else None, {"as_json": True, "kept": kept}),
    ]
