"""The data commands hand each option on, and say what has become of the data."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.data.conftest import packed, shards
from tread_lab.cli.data_commands import data_settings
from tread_lab.cli.main import main
from tread_lab.data.latents import write_manifest
from tread_lab.data.statistics import OURS, Statistics, write_statistics

__all__ = ["packed", "shards"]


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


MANIFEST: dict[str, Any] = {
    "made_with": {"scale": 0.18215, "classes": 1000},
    "samples": 40,
    "labels": 7,
    "latent": [4, 32, 32],
    "damaged": 2,
    "files": {"latents.npy": {"bytes": 2_000_000}},
}


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
            {"classes": 1000, "scale": 1, "normalise": True},
        ),
        ({"made_with": {"decoder_range": "unit"}}, {"classes": 7, "decoder_range": "unit"}),
    ],
)
def test_settings_follow_from_the_manifest(
    changes: dict[str, Any], settings: dict[str, Any]
) -> None:
    channels, size, _ = changes.get("latent", MANIFEST["latent"])
    named = {"source": "latents", "path": "x", "channels": channels, "size": size}
    assert data_settings(Path("x"), {**MANIFEST, **changes}) == {**named, **settings}
