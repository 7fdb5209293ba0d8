"""What the network sees is measured before it is trained on: official tars, arrays, mistakes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from tests.made_data import write_arrays
from tests.stand_ins import SCALE, write_autoencoder
from tread_lab.config import DataSpec, RunSpec, UserError, decode
from tread_lab.data.deviation import (
    check_decoded,
    check_deviation,
    measure_deviation,
)
from tread_lab.data.embedded import Fashion16
from tread_lab.data.latents import PackedArrays
from tread_lab.data.scaled import ScaledLatents
from tread_lab.data.source import open_data
from tread_lab.records.lab import Lab
from tread_lab.train.loop import train

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


def test_tars_of_webdataset_are_seen_at_their_deviation_and_not_trained_on_where_scaled_twice(
    official: Path, tmp_path: Path
) -> None:
    spec = spec_of(official, "shards", decoder_scale=0.18215, deviation=0.93)
    assert measure_deviation(open_data(spec.data, "train")) == pytest.approx(0.93, rel=0.03)
    twice = spec_of(official, "shards", scale=0.18215)
    says = r"deviation of 0\.169, and 0\.93 is expected .* data\.scale=1 data\.decoder_scale=0\.18"
    with pytest.raises(UserError, match=says) as caught:
        next(iter(train(twice, Lab(tmp_path / "lab").run_of(twice), torch.device("cpu"))))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("stored", "scale", "says"),
    [
        (1.0, None, r"or of unit variance, .* unit variance data\.normalise=tr"),
        (OFFICIAL, 1, None),
        (ENCODED, None, None),
        (ENCODED, 1, r"deviation of 5\.1.*not scaled yet, set data.scale=0.18"),
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
    """Samples [B, 4, 1, 2] of two values in each channel, whose deviations are given."""

    def __init__(self, *deviations: float, count: int = 4) -> None:
        signs = torch.tensor([-1.0, 1.0])
        self.x_CHW = torch.tensor(deviations)[:, None, None] * signs
        self.count, self.asked = count, torch.empty(0)

    def __len__(self) -> int:
        return self.count

    def take(self, ids: Tensor) -> tuple[Tensor, Tensor]:
        self.asked = ids
        return self.x_CHW.expand(len(ids), -1, -1, -1), ids


DECLARED, PROCESS = {"deviation": 0.5}, {"scale": 0.5}  # who says that 0.5 is expected


@pytest.mark.parametrize(
    ("said", "deviation", "refused"),
    [
        *((DECLARED, *case) for case in ((0.34, False), (0.33, True), (0.74, False), (0.76, True))),
        *((PROCESS, *case) for case in ((0.17, False), (0.16, True), (1.49, False), (1.51, True))),
    ],
)
def test_a_deviation_may_be_half_as_much_off_and_three_times_where_only_the_process_says_it(
    tmp_path: Path, said: dict[str, float], deviation: float, refused: bool
) -> None:
    spec = spec_of(tmp_path, "latents", **said)
    if not refused:
        assert check_deviation(spec, Stored(deviation)) == pytest.approx(deviation)
        return
    says = r"0\.5 is expected \(data\.deviation\)"
    if said is PROCESS:
        says = f"check data.scale, such as {0.25 / deviation:.3g}"
    with pytest.raises(UserError, match=says):
        check_deviation(spec, Stored(deviation))


@pytest.mark.parametrize("value", [0.0, float("nan")])
def test_constant_and_infinite_data_have_no_scale(tmp_path: Path, value: float) -> None:
    with pytest.raises(UserError, match="what is stored is constant or not finite"):
        check_deviation(spec_of(tmp_path, "latents"), Stored(value))


def test_a_channel_that_its_statistics_do_not_fit_is_told(tmp_path: Path) -> None:
    spec = spec_of(tmp_path, "safetensors", scale=0.5)
    with pytest.raises(UserError, match=r"channel 2 deviates by 3\.2 after it was divided"):
        check_deviation(spec, Stored(0.5, 1.4, 1.6, 0.5))
    check_deviation(spec, Stored(0.5, 1.4, 0.2, 0.5))
    own = spec_of(tmp_path, "safetensors", scale=0.5, deviation=0.85)
    check_deviation(own, Stored(0.5, 0.1, 1.6, 0.5))


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


@pytest.mark.parametrize("mean", [-0.5, -0.1, 0.4])
def test_decoded_samples_are_refused_in_the_other_range_alone(tmp_path: Path, mean: float) -> None:
    """Photographs of all brightnesses."""
    of = {p: photographs(tmp_path / p, p, mean) for p in ("signed", "unit")}
    for pixels, path in of.items():
        check_decoded(*made(path, pixels))
    with pytest.raises(UserError, match=r"^data.decoder_range: decoded as signed, .*; set it to"):
        check_decoded(*made(of["unit"], "signed"))
    with pytest.raises(UserError, match=r"lie beyond \+-1.6, .*; set it to signed, or che"):
        check_decoded(*made(of["signed"], "unit"))


def test_wrong_scales_are_no_images_and_what_is_random_or_has_no_decoder_is_let_be(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = photographs(tmp_path / "p", "signed")
    for factor in (1 / 0.18215, np.nan):
        np.save(path / "latents.npy", np.load(path / "latents.npy") * np.float32(factor))
        with pytest.raises(UserError, match=r"lie beyond \+-1.6, .*; check data.decoder_scale and"):
            check_decoded(*made(path, "signed"))
    pytest.importorskip("diffusers")
    write_autoencoder(tmp_path / "vae")
    monkeypatch.setenv("TREAD_LAB_AUTOENCODER", str(tmp_path / "vae"))
    random = write_arrays(tmp_path / "random", normal(1.0))
    for pixels in ("signed", "unit"):
        spec = spec_of(random, "latents", decoder_range=pixels, scale=SCALE).data
        check_decoded(spec, open_data(spec, "heldout"))
    check_decoded(DataSpec(), open_data(DataSpec(), "heldout"))
