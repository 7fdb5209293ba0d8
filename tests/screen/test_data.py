"""What making data sets prints: how far it is, its rate, what it holds, its settings."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tread_lab.prepare.build import Steps
from tread_lab.prepare.measure import Measured
from tread_lab.screen.data import data_settings, progress_line, show_measured, show_packed

MANIFEST: dict[str, Any] = {
    "made_with": {"scale": 0.18215, "classes": 1000},
    "samples": 40,
    "labels": 7,
    "latent": [4, 32, 32],
    "damaged": 2,
    "files": {"latents.npy": {"bytes": 2_000_000}},
}


def test_progress_says_rate_time_left_and_damage() -> None:
    assert progress_line(Steps(0, 100), "images", 0.0) == "0/100 images"
    assert progress_line(Steps(50, 1000, 1), "images", 1.0) == "50/1,000 images, 1 damaged"
    line = progress_line(Steps(500, 2000), "images", 10.0)
    assert line == "500/2,000 images, 50 images/s, 30 s left"


def test_a_packed_set_is_shown_with_its_settings(capsys: pytest.CaptureFixture[str]) -> None:
    show_packed(Path("latents"), MANIFEST, as_json=False)
    assert capsys.readouterr().out.splitlines() == [
        "latents: 40 samples of 4x32x32, 7 labels, 2 MB",
        "2 damaged images left out; damaged.txt names them",
        "data: {source: latents, path: latents, channels: 4, size: 32, classes: 1000,"
        " decoder_scale: 0.18215}",
    ]


def test_what_was_packed_scaled_or_normalised_stays_so() -> None:
    tars = {**MANIFEST, "made_with": {"packed": "shards", "scaled": True}}
    assert data_settings(Path("x"), tars) | {"scale": 1, "decoder_scale": 0.18215} == data_settings(
        Path("x"), tars
    )
    lightning = {**MANIFEST, "made_with": {"packed": "safetensors", "scaled": True}}
    lightning["files"] = {"statistics.json": {"bytes": 1}}
    assert data_settings(Path("x"), lightning)["normalise"] == "true"


def test_measured_values_are_a_table_and_scales(capsys: pytest.CaptureFixture[str]) -> None:
    mean, deviation = np.array([0.5, -1.0]), np.array([5.0, 5.2])
    measured = Measured((2, 4, 4), (3, 0, 2), mean, deviation, 0.0, 5.1, -9.0, 8.0)
    show_measured(measured, as_json=False)
    out = capsys.readouterr().out
    assert "5 samples of 2x4x4, 2 labels, 2 to 3 of each, 1 label without samples" in out
    assert "over all 5.1, from -9 to 8" in out
    assert "scale for a deviation of 0.5 (EDM's sigma_data): 0.098039; of 1: 0.19608" in out
    assert "these look like latents of the SD autoencoder: its factor is 0.18215" in out
