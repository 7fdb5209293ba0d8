"""The data commands hand each option on, and say what has become of the data."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.data.conftest import packed, shards
from tread_lab.cli.data_commands import data_settings, show_measured
from tread_lab.cli.main import main
from tread_lab.data.latents import write_manifest
from tread_lab.data.measure import Measured
from tread_lab.data.statistics import OURS, Statistics, write_statistics

__all__ = ["packed", "shards"]


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


def test_written_statistics_keep_checksums_valid(
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


def test_reference_checks_inception_first(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("TREAD_LAB_INCEPTION", raising=False)
    assert main(["data", "reference", "nowhere", "r.npz"]) == 2
    assert "TREAD_LAB_INCEPTION" in capsys.readouterr().err


MANIFEST: dict[str, Any] = {
    "made_with": {"scale": 0.18215, "classes": 1000},
    "samples": 40,
    "labels": 7,
    "latent": [4, 32, 32],
    "damaged": 2,
    "files": {"latents.npy": {"bytes": 2_000_000}},
}
FOUND = Measured(
    (2, 4, 4), (3, 1, 0, 2), np.array([0.5, -1.0]), np.array([5.0, 5.2]), 0.25, 5.0, -9.0, 8.0
)


@pytest.mark.parametrize(
    ("changes", "settings"),
    [
        ({}, {"classes": 1000, "decoder_scale": 0.18215}),
        ({"made_with": {}}, {"classes": 7}),
        (
            {"made_with": {"packed": "shards", "scaled": True}},
            {"classes": 7, "scale": 1, "decoder_scale": 0.18215},
        ),
        ({"made_with": {"packed": "folder"}, "latent": [16, 4, 4]}, {"classes": 7}),
        (
            {"files": {"statistics.json": {"bytes": 1500}}},
            {"classes": 1000, "scale": 1, "normalise": "true"},
        ),
        ({"made_with": {"decoder_range": "unit"}}, {"classes": 7, "decoder_range": "unit"}),
    ],
)
def test_settings_follow_from_the_manifest(
    changes: dict[str, Any], settings: dict[str, Any]
) -> None:
    channels, size, _ = changes.get("latent", MANIFEST["latent"])
    named = {"source": "latents", "path": Path("x"), "channels": channels, "size": size}
    assert data_settings(Path("x"), {**MANIFEST, **changes}) == {**named, **settings}


def test_measurements_are_a_table_and_scales(capsys: pytest.CaptureFixture[str]) -> None:
    show_measured(FOUND, as_json=False)
    text = " ".join(capsys.readouterr().out.split())
    assert "6 samples of 2x4x4, 3 of 4 labels, 1 to 3 of each" in text
    assert "scale for a deviation of 0.5 (EDM): 0.1; of 1: 0.2" in text
    show_measured(FOUND, as_json=True)
    tree = json.loads(capsys.readouterr().out)
    assert tree["mean_C"] == [0.5, -1.0] and tree["scale"] == {"edm": 0.1, "flow": 0.2}


def test_repeated_pack_shows_what_is_there(
    shards: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    command = ["data", "pack", str(shards), str(tmp_path / "out")]
    assert main(command) == 0
    first = capsys.readouterr().out
    assert main(command) == 0 and capsys.readouterr().out == first != ""
