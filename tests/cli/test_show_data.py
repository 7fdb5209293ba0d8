"""What making data sets prints: what it holds, its settings, its scales."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tread_lab.cli.show_data import data_settings, show_measured
from tread_lab.data.measure import Measured

MANIFEST: dict[str, Any] = {
    "made_with": {"scale": 0.18215, "classes": 1000},
    "samples": 40,
    "labels": 7,
    "latent": [4, 32, 32],
    "damaged": 2,
    "files": {"latents.npy": {"bytes": 2_000_000}},
}
MEASURED = Measured(
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


def test_measured_values_are_a_table_and_scales(capsys: pytest.CaptureFixture[str]) -> None:
    show_measured(MEASURED, as_json=False)
    text = " ".join(capsys.readouterr().out.split())
    assert "6 samples of 2x4x4, 3 of 4 labels, 1 to 3 of each" in text
    assert "scale for a deviation of 0.5 (EDM): 0.1; of 1: 0.2" in text
    show_measured(MEASURED, as_json=True)
    tree = json.loads(capsys.readouterr().out)
    assert tree["mean_C"] == [0.5, -1.0] and tree["scale"] == {"edm": 0.1, "flow": 0.2}
