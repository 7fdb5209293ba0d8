"""The figures command prints the paths of what it has drawn."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.synthetic import small, write_sweep
from tread_lab.commands import figures
from tread_lab.specs import UserError


def test_the_figures_of_the_named_sweep_are_drawn_and_their_paths_printed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    calls: list[Any] = []
    write_sweep(tmp_path, small())

    def write_figures(lab: Any, name: str) -> list[Path]:
        calls.append((lab.root, name))
        return [Path("a.png"), Path("a.pdf")]

    monkeypatch.setattr(figures, "write_figures", write_figures)
    assert figures.run(root=str(tmp_path), name="placement") == 0
    assert calls == [(tmp_path, "placement")]
    assert capsys.readouterr() == ("a.png\na.pdf\n", "")
    with pytest.raises(UserError, match="no sweep 'other'"):
        figures.run(root=str(tmp_path), name="other")
    with pytest.raises(UserError, match="does not exist"):
        figures.run(root=str(tmp_path / "absent"), name="placement")
