"""REPA's feature cache: computed once, resumed where it stopped, one for equal images only."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.train.runs import differing, last_checkpoint, train_until
from tread_lab.config import RunSpec, decode
from tread_lab.config.data import DataSpec
from tread_lab.data import open_data
from tread_lab.methods.repa import alignment
from tread_lab.methods.repa.alignment import feature_cache
from tread_lab.methods.repa.spec import RepaSpec
from tread_lab.records.run_folder import RunFolder


def test_what_decides_the_features_names_the_cache(tmp_path: Path) -> None:
    samples = open_data(DataSpec(), "train")
    spec = RepaSpec(encoder="fashion16-v1")

    def path(spec: RepaSpec = spec, side: int = 8, encoder: str = "e", **facts: str) -> Path:
        return feature_cache(
            tmp_path, spec, Facts(samples, **facts), side=side, encoder=encoder
        ).folder

    decoded = RepaSpec(encoder="fashion16-v1", target="decoded")
    others = [path(side=4), path(encoder="f"), path(fingerprint="other"), path(decoded)]
    others.append(path(decoded, decoder="another"))
    assert len({path(), *others}) == 6
    assert path() == path(decoder="another")  # stored images have no decoder
    assert path() == path(RepaSpec(encoder="fashion16-v1", weight=2.0, block=1))


class Facts:
    """Samples some of whose facts are others."""

    def __init__(self, samples: Any, **facts: str) -> None:
        self._samples = samples
        self.__dict__.update(facts)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._samples, name)

    def __len__(self) -> int:
        return len(self._samples)


@pytest.fixture
def latents(tmp_path: Path) -> Path:
    """Sixty-four latents of one channel, 8x8, with the images they were made from."""
    folder, rng = tmp_path / "latents", np.random.default_rng(0)
    folder.mkdir()
    np.save(folder / "latents.npy", rng.normal(size=(64, 1, 8, 8)).astype(np.float16))
    np.save(folder / "labels.npy", rng.integers(0, 10, 64))
    np.save(folder / "images.npy", rng.integers(0, 256, (64, 1, 16, 16), dtype=np.uint8))
    return folder


def spec_of(latents: Path, **repa: Any) -> RunSpec:
    tree = {
        "model": {"depth": 4, "width": 16, "heads": 2, "patch": 2},
        "data": {"source": "latents", "path": str(latents), "channels": 1, "size": 8},
        "train": {"steps": 12, "batch": 8, "lr": 1e-3},
        "precision": "fp32",
        "routes": ["1->2"],
        "repa": {"encoder": "fashion16-v1", "hidden": 8, **repa},
        "execution": {"log_every": 5, "checkpoint_every": 5},
    }
    return decode(RunSpec, tree)


def test_training_encodes_each_image_once(
    latents: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[int] = []
    opener = alignment.open_encoder

    def counting(*args: Any, **more: Any) -> Any:
        encoder = opener(*args, **more)
        return lambda images: (seen.append(len(images)), encoder(images))[1]

    monkeypatch.setattr(alignment, "open_encoder", counting)
    spec = spec_of(latents)
    whole = RunFolder(tmp_path / "one/runs/whole")
    train_until(spec, whole.path)
    assert sum(seen) == len(open_data(spec.data, "train")) > 50
    parts = RunFolder(tmp_path / "two/runs/parts")
    for step in (1, 8, None):  # the first stops while the cache is filled
        train_until(spec, parts.path, step)
    assert differing(whole, parts) == [] and last_checkpoint(parts).step == 12
