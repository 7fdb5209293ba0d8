"""Costs of named models, and batch files for Slurm, whose words survive every shell."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.faults.sweeps import SMALL
from tread_lab.cli.main import main, parse

ASKED = ("--nodes=2", "--gpus=8", "--time=12:00:00")


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder, whose name every shell would take apart, with the small sweep."""
    folder = tmp_path / "my 'own' $HOME 50%"
    folder.mkdir()
    (folder / "small.yaml").write_text(SMALL)
    monkeypatch.chdir(folder)
    return folder


def printed(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    assert main(["submit", "slurm", "small.yaml", *words]) == 0
    return capsys.readouterr().out


def in_bash(text: str, expression: str) -> list[str]:
    """What bash makes of the variables of a batch file."""
    head = text.partition("set -u")[0]
    code = f'{head}\nprintf "%s\\0" {expression}'
    done = subprocess.run(["bash", "-c", code], capture_output=True, text=True, check=True)
    return done.stdout.split("\0")[:-1]


QUESTION = 'question="Who\'s $HOME, `id`?"'


def test_quotes_and_spaces_survive(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = printed(capsys, *ASKED, QUESTION)
    subprocess.run(["bash", "-n"], input=text, text=True, check=True)
    words = in_bash(text, '"${sweep[@]}"')
    assert words[:3] == ["sweep", f"{place}/small.yaml", QUESTION]
    assert parse(words).overrides == [QUESTION]  # the driver understands its words
    assert in_bash(text, '"$python" "$lab"') == [sys.executable, f"{place}/lab"]


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (["sedes=[1]"], "unknown key 'sedes'. Try seeds=[1]"),
        (["hour=2"], "Try hours=2"),
        (["--gpus-per-run=1.5"], "--gpus: must be a share of one GPU"),
        (["--dry-run"], "--dry-run: unknown argument. Try --plan."),
    ],
)
def test_wrong_batch_file_is_one_line(
    place: Path, capsys: pytest.CaptureFixture[str], words: list[str], line: str
) -> None:
    assert main(["submit", "slurm", "small.yaml", *ASKED, *words]) == 2
    out, err = capsys.readouterr()
    assert line in err and err.count("\n") == 1 and not out
