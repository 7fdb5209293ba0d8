"""The status command shows a lab, a sweep or a run, by what is named."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.synthetic import small, tiny_spec, write_sweep
from tread_lab.commands import status
from tread_lab.specs import UserError, signature

RUN = signature(tiny_spec((2, 8)))


@pytest.mark.parametrize(
    ("name", "watch", "shown"),
    [
        (None, False, ("show_lab", None, {"as_json": True})),
        (None, True, ("show_lab", None, {"as_json": True})),
        ("placement", False, ("show_sweep", "placement", {"as_json": True})),
        ("placement", True, ("watch_sweep", "placement", {})),
        (RUN[:6], False, ("show_run", RUN, {"as_json": True})),
    ],
)
def test_what_is_named_is_shown(
    name: str | None, watch: bool, shown: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[Any] = []
    write_sweep(tmp_path, small(similarity=True))
    for kind in ("show_lab", "show_sweep", "watch_sweep"):

        def show(lab: Any, *what: Any, kind: str = kind, **how: Any) -> int:
            calls.append((kind, what[0] if what else None, how))
            return 0

        monkeypatch.setattr(status, kind, show)
    monkeypatch.setattr(
        status, "show_run", lambda folder, **how: calls.append(("show_run", folder.name, how))
    )
    assert status.run(root=str(tmp_path), name=name, watch=watch, as_json=True) == 0
    assert calls == [shown]


def test_a_run_cannot_be_watched_and_an_absent_lab_is_said(tmp_path: Path) -> None:
    write_sweep(tmp_path, small())
    with pytest.raises(UserError, match="no sweep"):
        status.run(root=str(tmp_path), name=RUN, watch=True, as_json=False)
    with pytest.raises(UserError, match="has no sweep 'placment', did you mean 'placement'"):
        status.run(root=str(tmp_path), name="placment", watch=False, as_json=False)
    with pytest.raises(UserError, match="does not exist"):
        status.run(root=str(tmp_path / "absent"), name=None, watch=False, as_json=False)
