"""The table of sources."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from tests.data.conftest import opened
from tests.data.test_folder import repa
from tests.data.test_lightning import files
from tread_lab.config import DataSpec, UserError
from tread_lab.config.data import SOURCES
from tread_lab.data import open_data, source
from tread_lab.data.pack import pack
from tread_lab.data.source import content_digest
from tread_lab.data.statistics import Statistics, write_statistics

__all__ = ["files", "repa"]


def test_data_without_a_path_are_one_line() -> None:
    for name in SOURCES.built_in.keys() - {"fashion16"}:
        for look in (content_digest, lambda spec: open_data(spec, "heldout")):
            with pytest.raises(UserError, match=r"^data.path: must be the folder or file"):
                look(DataSpec(source=name))


def test_decoder_gets_what_the_encoder_gave(
    shards: Path, packed: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Tars hold it times 0.18215, or what they are told, and so do arrays packed of tars."""
    for folder in (shards, packed):
        write_statistics(folder / "statistics.json", Statistics(np.full(4, 0.1), np.full(4, 0.9)))
    assert [*pack("shards", shards, tmp_path / "of_tars", batch=40)]
    monkeypatch.setattr(
        source, "open_autoencoder", lambda scale, range: lambda x_BCHW: x_BCHW / (scale or 1)
    )

    stored_BCHW = np.delete(np.load(packed / "latents.npy"), (10, 30), axis=0).astype(np.float64)

    def factor(source: str, path: Path, **changes: Any) -> float:
        samples = opened(source, path, **{"normalise": True, **changes})
        given_BCHW = samples.pixels(samples.take(torch.arange(38))[0]).double().numpy()
        found = float(stored_BCHW.std() / given_BCHW.std())
        assert np.allclose(given_BCHW * found, stored_BCHW, atol=1e-5)  # its mean, too
        return found

    assert [
        factor("shards", shards),
        factor("shards", shards, scale=0.5),
        factor("shards", shards, decoder_scale=1.0),
        factor("latents", tmp_path / "of_tars", scale=1.0),
        factor("latents", tmp_path / "of_tars", scale=1.0, decoder_scale=0.3),
        factor("latents", packed, scale=1.0, decoder_scale=0.18215),
        factor("latents", packed, scale=1.0, decoder_scale=2.0, normalise=False),
    ] == pytest.approx([0.18215, 0.18215, 1.0, 0.18215, 0.3, 1.0, 2.0], rel=1e-4)
