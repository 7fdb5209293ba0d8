"""Stand-ins have the shapes of the published files, and lead from an empty folder to a number."""

from __future__ import annotations

import json
import shlex
from pathlib import Path

import pytest

from tests.end_to_end.test_data import small_inception
from tread_lab.cli import main
from tread_lab.metrics.extraction import SPACES, Space
from tread_lab.metrics.fidelity import inception_weights
from tread_lab.prepare.required_files import REQUIRED, STANDS_IN, absences
from tread_lab.prepare.stand_ins import write_stand_ins


@pytest.mark.slow
def test_the_printed_commands_lead_from_an_empty_folder_to_a_fid_that_says_stand_in(
    in_folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("diffusers")
    pytest.importorskip("transformers")
    # A small network in its place: the random one of Inception's shape takes a minute.
    small = Space((1, 3), inception_weights, lambda path, device: small_inception)
    monkeypatch.setitem(SPACES, "inception", small)
    assert main(["doctor", "--stand-ins", "our rehearsal"]) == 0
    lines = [shlex.split(line) for line in capsys.readouterr().out.splitlines()]
    for _, setting in (words for words in lines if words[0] == "export"):
        name, _, path = setting.partition("=")
        assert Path(path).is_absolute(), name  # it holds in any folder
        monkeypatch.setenv(name, path)
    for command in (words[1:] for words in lines if words[0] == "tread-lab"):
        assert main(command) == (command == ["doctor"]), command  # which warns of each stand-in
    said = capsys.readouterr().out
    assert "fid[stand-in]@100" in said and " fid@" not in said
    assert said.count(STANDS_IN) == 5
    assert {absences()[name] for name in REQUIRED} == {None, STANDS_IN, _not_set("DINOv2 large")}
    (result,) = (in_folder / "our rehearsal" / "lab").glob("runs/*/evaluations/*/metrics.json")
    assert list(json.loads(result.read_text())["metrics"]) == ["fid[stand-in]@100"]


def _not_set(name: str) -> str:
    return f"{REQUIRED[name].named_by} is not set"


def test_a_folder_that_holds_something_is_left_alone(
    in_folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (in_folder / "full").mkdir()
    (in_folder / "full" / "mine").touch()
    assert main(["doctor", "--stand-ins", "full"]) == 2
    assert "is not empty; name a new folder" in capsys.readouterr().err
    assert [path.name for path in (in_folder / "full").iterdir()] == ["mine"]
    assert next(write_stand_ins(in_folder / "new"))[0] == "images"
