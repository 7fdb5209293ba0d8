"""What the network sees is measured before it is trained on: official tars, arrays, mistakes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from tests.made_data import write_arrays
from tread_lab.config import DataSpec, RunSpec, UserError, decode
from tread_lab.data.deviation import (
    check_decoded,
    check_deviation,
)
from tread_lab.data.embedded import Fashion16
from tread_lab.data.latents import PackedArrays
from tread_lab.data.source import open_data
from tread_lab.data.stored import ScaledLatents
from tread_lab.records.lab import Lab
from tread_lab.train.trainer import train

OFFICIAL = 0.93  # deviation of SD latents times 0.18215
ENCODED = 0.93 / 0.18215  # as the encoder gives them


def spec_of(path: Path, source: str, process: str = "edm", **data: Any) -> RunSpec:
    tree = {"source": source, "path": str(path), "channels": 4, "size": 8, "classes": 7, **data}
    model = {"depth": 2, "width": 8, "heads": 2}
    train = {"steps": 2, "batch": 4}
    rest = {"precision": "fp32", "process": process, "train": train}
    return decode(RunSpec, {"model": model, "data": tree, **rest})


def normal(deviation: float, count: int = 40) -> np.ndarray:
    found = np.random.default_rng(0).normal(size=(count, 4, 8, 8)) * deviation
    return found.astype(np.float32)


@pytest.fixture
def official(tmp_path: Path) -> Path:
    """Tars as the official code's: written by webdataset, latents already times 0.18215."""
    webdataset = pytest.importorskip("webdataset")
    pattern = str(tmp_path / "part-%03d.tar")
    with webdataset.ShardWriter(pattern, maxcount=15, verbose=0) as writer:
        for k, latent in enumerate(normal(OFFICIAL)):
            writer.write({"__key__": f"{k:06d}", "latent.npy": latent, "cls": k % 7})
    return tmp_path


def test_tars_scaled_twice_are_not_trained_on(official: Path, tmp_path: Path) -> None:
    spec = spec_of(official, "shards", decoder_scale=0.18215, deviation=0.93)
    assert check_deviation(spec, open_data(spec.data, "train")) == pytest.approx(0.93, rel=0.03)
    twice = spec_of(official, "shards", scale=0.18215)
    says = r"near 0\.93 .*, got 0\.169\. Try data\.scale=1 data\.decoder_scale=0\.18215\."
    with pytest.raises(UserError, match=says) as caught:
        next(iter(train(twice, Lab(tmp_path / "lab").run_of(twice), torch.device("cpu"))))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("stored", "scale", "says"),
    [
        (OFFICIAL, None, r"Try data\.scale=1 data\.decoder_scale=0\.18215"),
        (OFFICIAL, 1, None),
        (ENCODED, None, None),
        (ENCODED, 1, r"got 5\.1.*Try data\.scale=0\.18 data\.decoder_scale=0\.18215"),
    ],
)
def test_arrays_are_scaled_once(
    tmp_path: Path, stored: float, scale: float | None, says: str | None
) -> None:
    path = write_arrays(tmp_path / "packed", normal(stored))
    spec = spec_of(path, "latents", scale=scale, decoder_scale=0.18215)
    samples = open_data(spec.data, "train")
    if says is None:
        assert check_deviation(spec, samples) == pytest.approx(0.93, rel=0.03)
        return
    with pytest.raises(UserError, match=says):
        check_deviation(spec, samples)


class Stored(Fashion16):
    """Four samples [1, 1, 2] of two values, whose deviation is given."""

    def __init__(self, deviation: float) -> None:
        self.x_CHW = deviation * torch.tensor([[[-1.0, 1.0]]])

    def __len__(self) -> int:
        return 4

    def take(self, ids: Tensor) -> tuple[Tensor, Tensor]:
        return self.x_CHW.expand(len(ids), -1, -1, -1), ids


DECLARED, PROCESS = {"deviation": 0.5}, {"scale": 0.5}  # who says that 0.5 is expected


@pytest.mark.parametrize(
    ("said", "deviation", "refused"),
    [
        *((DECLARED, *case) for case in ((0.34, False), (0.33, True), (0.74, False), (0.76, True))),
        *((PROCESS, *case) for case in ((0.17, False), (0.16, True), (1.49, False), (1.51, True))),
        *((PROCESS, value, True) for value in (0.0, float("nan"))),
    ],
)
def test_deviation_may_be_somewhat_off(
    tmp_path: Path, said: dict[str, float], deviation: float, refused: bool
) -> None:
    spec = spec_of(tmp_path, "latents", **said)
    if not refused:
        assert check_deviation(spec, Stored(deviation)) == pytest.approx(deviation)
        return
    why = "data.deviation" if said is DECLARED else "EDM's sigma_data"
    with pytest.raises(UserError, match=rf"must be near 0\.5 \({why}\), got"):
        check_deviation(spec, Stored(deviation))


class MadeDecoder:
    """An autoencoder whose latents are the means of 8 x 8 pixels in the range that it was fed."""

    digest, enlarges = "made", 8

    def __init__(self, pixels: str) -> None:
        self.pixels = pixels

    def __call__(self, x_BCHW: Tensor) -> Tensor:
        raise NotImplementedError

    def signed(self, x_BCHW: Tensor) -> Tensor:
        image_BCHW = x_BCHW[:, :3].repeat_interleave(8, 2).repeat_interleave(8, 3)
        return image_BCHW if self.pixels == "signed" else 2 * image_BCHW - 1


def photographs(folder: Path, pixels: str, mean: float = -0.1) -> Path:
    """Latents of `MadeDecoder`: values of photographs, some of them saturated."""
    values = np.clip(normal(0.5) + mean, -1, 1)
    return write_arrays(folder, values if pixels == "signed" else (values + 1) / 2)


def made(path: Path, pixels: str) -> tuple[DataSpec, ScaledLatents]:
    spec = spec_of(path, "latents", decoder_range=pixels).data
    return spec, ScaledLatents(PackedArrays(spec, "heldout"), spec, MadeDecoder(pixels))


NO_IMAGES = r"^data.decoder_range: images decoded from .* as {} must be in -1..1"


@pytest.mark.parametrize("mean", [-0.5, -0.1, 0.4])
def test_decoded_samples_of_another_range_are_refused(tmp_path: Path, mean: float) -> None:
    """Photographs of all brightnesses."""
    of = {p: photographs(tmp_path / p, p, mean) for p in ("signed", "unit")}
    for pixels, path in of.items():
        check_decoded(*made(path, pixels))
    with pytest.raises(UserError, match=NO_IMAGES.format("signed")):
        check_decoded(*made(of["unit"], "signed"))
    with pytest.raises(UserError, match=NO_IMAGES.format("unit")):
        check_decoded(*made(of["signed"], "unit"))
