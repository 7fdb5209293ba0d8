"""The export command lists the files that it has written, and refuses a sweep."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.synthetic import small, tiny_spec, write_sweep
from tread_lab.commands import export
from tread_lab.specs import UserError, signature


def test_files_are_listed_with_their_sizes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    calls: list[Any] = []
    write_sweep(tmp_path, small(similarity=True))

    def written(folder: Any, out: Path, *, step: int | None) -> dict[str, int]:
        calls.append((folder.name, out, step))
        return {"model.safetensors": 2000, "README.md": 5}

    monkeypatch.setattr(export, "export", written)
    run = signature(tiny_spec((2, 8)))
    assert export.run(root=str(tmp_path), name=run[:6], out="there", step=4) == 0
    assert calls == [(run, Path("there"), 4)]
    assert capsys.readouterr().out == "there/model.safetensors: 2 kB\nthere/README.md: 5 B\n"
    with pytest.raises(UserError, match=r"^placement is a sweep; `tread-lab status placement`"):
        export.run(root=str(tmp_path), name="placement", out="there", step=None)
