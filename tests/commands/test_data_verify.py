"""The data verify command has a line for each fault, and an exit code that tells."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tread_lab.commands import data_verify


@pytest.mark.parametrize(
    ("found", "code", "said"),
    [([], 0, "x: no faults"), (["a"], 1, "x: 1 fault"), (["a", "b"], 1, "x: 2 faults")],
)
@pytest.mark.parametrize("source", ["latents", None])
def test_faults_are_printed_and_counted(
    source: str | None,
    found: list[str],
    code: int,
    said: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    asked: list[Any] = []

    def faults(name: str, path: Path, *, classes: int | None) -> list[str]:
        asked.append((name, path, classes))
        return found

    monkeypatch.setattr(data_verify, "faults", faults)
    monkeypatch.setattr(data_verify, "source_of", lambda path: f"source of {path}")
    how: Any = {"path": Path("x"), "source": source, "classes": 5}
    assert data_verify.run(**how, as_json=False) == code
    assert capsys.readouterr() == ("".join(f"{line}\n" for line in found), f"{said}\n")
    assert data_verify.run(**how, as_json=True) == code
    out, err = capsys.readouterr()
    assert json.loads(out) == {"path": "x", "faults": found} and err == ""
    assert asked == [(source or "source of x", Path("x"), 5)] * 2
