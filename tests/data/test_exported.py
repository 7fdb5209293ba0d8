"""The folder of exported weights stands for its data, of which it holds no sample."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from tread_lab.config import DataSpec, UserError
from tread_lab.data.deviation import check_decoded
from tread_lab.data.source import open_data


@pytest.fixture
def export(tmp_path: Path) -> Path:
    """A folder of exported weights that records its held-out samples."""
    for name in ("model.safetensors", "spec.yaml"):
        (tmp_path / name).touch()
    (tmp_path / "config.json").write_text(json.dumps({"heldout": "0123"}))
    return tmp_path


@pytest.mark.parametrize(("source", "channels"), [("latents", 4), ("images", 3)])
def test_an_export_says_what_samples_are_and_gives_none(
    source: str, channels: int, export: Path
) -> None:
    spec = DataSpec(source=source, path=str(export), channels=channels, size=8)
    heldout = open_data(spec, "heldout")
    assert (heldout.shape, len(heldout), heldout.fingerprint) == ((channels, 8, 8), 0, "0123")
    check_decoded(spec, heldout)
    for refused in (
        lambda: open_data(spec, "train"),
        lambda: heldout.take(torch.zeros(0, dtype=torch.int64)),
    ):
        with pytest.raises(UserError, match="holds exported weights and no samples; write the"):
            refused()


def test_what_an_exported_network_gives_has_the_scale_of_its_images(export: Path) -> None:
    spec = DataSpec(source="images", path=str(export), channels=3, size=1, scale=0.5)
    x_BCHW = torch.tensor([-0.5, 0.0, 0.5]).view(1, 3, 1, 1)
    assert open_data(spec, "heldout").pixels(x_BCHW).flatten().tolist() == [0, 128, 255]
