"""Scenes of the terminal: each is shown without an error."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from rich.table import Table

from tread_lab.cli.console import answers, notices


class Screen:
    """Several scenes below one another; `width` is that of the terminal in columns."""

    def __init__(self, capsys: pytest.CaptureFixture[str], folder: Path) -> None:
        self._capsys, self._folder = capsys, folder
        self.scenes: list[str] = []
        self.width = 160

    def __call__(self, title: str, show: Callable[..., object], *args: Any, **more: Any) -> None:
        """Add what a call prints; lines and tables that it returns are printed."""
        answers.width = notices.width = self.width
        self._capsys.readouterr()
        shown = show(*args, **more)
        if isinstance(shown, Table):
            answers.print(shown)
        out, err = self._capsys.readouterr()
        lines = [*out.splitlines(), *(f"stderr: {line}" for line in err.splitlines())]
        text = "\n".join(line.rstrip() for line in lines).replace(str(self._folder), "FOLDER")
        self.scenes.append(f"===== {title}\n{text}\n")


@pytest.fixture
def screen(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> Iterator[Screen]:
    """The scenes of a test."""
    before = answers.width, notices.width
    shown = Screen(capsys, tmp_path)
    yield shown
    answers.width, notices.width = before
    assert shown.scenes
