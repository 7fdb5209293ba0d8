"""The data commands hand each option on, and say what has become of the data."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from tests.data.conftest import packed
from tread_lab.cli.main import main
from tread_lab.data.latents import write_manifest
from tread_lab.data.measure import Measured
from tread_lab.data.statistics import OURS, Statistics, write_statistics

__all__ = ["packed"]

MEASURED = Measured((1, 2, 2), (3,), np.array([0.5]), np.array([2.0]), 0.0, 2.0, -1.0, 1.0)
IMAGES = SimpleNamespace(names=range(1234), classes=range(10))


@pytest.mark.parametrize(
    ("found", "code", "told"),
    [([], 0, "x: no faults"), (["a"], 1, "x: 1 fault"), (["a", "b"], 1, "x: 2 faults")],
)
def test_faults_are_printed_and_counted(
    found: list[str],
    code: int,
    told: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def faults(name: str, path: Path, *, classes: int | None) -> list[str]:
        assert (name, path, classes) == ("latents", Path("x"), 5)
        return found

    monkeypatch.setattr("tread_lab.data.measure.faults", faults)
    line = ["data", "verify", "x", "--source", "latents", "--classes", "5"]
    assert main(line) == code
    assert capsys.readouterr() == ("".join(f"{line}\n" for line in found), f"{told}\n")
    assert main([*line, "--json"]) == code
    assert json.loads(capsys.readouterr().out) == {"path": "x", "faults": found}


@pytest.mark.parametrize(("name", "is_file"), [("latents", False), ("latents.npz", True)])
@pytest.mark.parametrize("write", [True, False])
def test_statistics_lie_in_the_folder_of_the_data(
    write: bool,
    name: str,
    is_file: bool,
    in_folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    path = in_folder / name
    path.touch() if is_file else path.mkdir()
    monkeypatch.setattr("tread_lab.data.source.open_store", lambda source, where: None)
    monkeypatch.setattr("tread_lab.data.measure.measure", lambda store: MEASURED)
    line = ["data", "stats", str(path), "--source", "latents", *(["--write"] if write else [])]
    assert main(line) == 0
    place = (in_folder if is_file else path) / OURS
    assert place.exists() == write
    told = f"{place}: mean and deviation of each channel, for data.normalise=true\n"
    assert capsys.readouterr().err == (told if write else "")

    def full(*_: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("tread_lab.data.statistics.write_statistics", full)
    assert main(line) == (3 if write else 0)
    assert capsys.readouterr().err.count("\n") == write


def test_a_packed_set_is_whole_after_its_statistics_were_written_and_still_tells_other_changes(
    packed: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_statistics(packed / OURS, Statistics(np.zeros(4), np.ones(4)))
    write_manifest(packed, {}, ["latents.npy", "labels.npy", OURS])
    assert main(["data", "stats", str(packed), "--write"]) == 0
    assert main(["data", "verify", str(packed)]) == 0
    np.save(packed / "labels.npy", np.zeros(40, np.int64))
    assert main(["data", "stats", str(packed), "--write"]) == 0
    capsys.readouterr()
    assert main(["data", "verify", str(packed)]) == 1
    assert capsys.readouterr().out.startswith(f"{packed / 'labels.npy'}: its checksum differs")


def test_a_reference_needs_inception_before_images_are_listed(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("TREAD_LAB_INCEPTION", raising=False)
    assert main(["data", "reference", "nowhere", "r.npz"]) == 2
    assert "TREAD_LAB_INCEPTION" in capsys.readouterr().err
