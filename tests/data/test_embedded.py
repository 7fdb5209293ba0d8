"""The embedded images in model space and back."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from tread_lab.data.embedded import ASSET, Fashion16
from tread_lab.data.scaled import Split


def _stored(name: str) -> np.ndarray:
    from importlib.resources import files

    with (files("tread_lab.data") / "assets" / ASSET).open("rb") as file:
        array: np.ndarray = np.load(file)[name]
    return array


@pytest.mark.parametrize(
    ("split", "part", "n"), [("train", "train", 20_000), ("heldout", "test", 10_000)]
)
def test_pixels_gives_back_every_stored_level(split: Split, part: str, n: int) -> None:
    samples = Fashion16(split)
    x_NCHW, labels_N = samples.take(torch.arange(n))
    assert len(samples) == n and x_NCHW.dtype == torch.float32
    assert np.array_equal(samples.pixels(x_NCHW)[:, 0].numpy(), _stored(f"{part}_images"))
    assert np.array_equal(labels_N.numpy(), _stored(f"{part}_labels"))
    assert labels_N.dtype == torch.int64


def test_images_are_normalised_by_the_training_images_to_mean_zero_and_deviation_one_half() -> None:
    train, heldout = Fashion16("train"), Fashion16("heldout")
    x_NCHW, _ = train.take(torch.arange(20_000))
    assert abs(x_NCHW.double().mean().item()) < 1e-5
    assert x_NCHW.double().std(correction=0).item() == pytest.approx(0.5, abs=1e-6)
    black = torch.tensor([0])
    assert train.take(black)[0].min() == heldout.take(black)[0].min()
    assert train.fingerprint != heldout.fingerprint == Fashion16("heldout").fingerprint


def test_pixels_rounds_to_the_nearest_level_and_stays_within_the_range() -> None:
    samples = Fashion16("train")
    levels = torch.tensor([99.6, 100.4, -30.0, 300.0]).view(1, 1, 2, 2)
    x_BCHW = (levels - samples._mean) * (0.5 / samples._deviation)
    assert samples.pixels(x_BCHW).flatten().tolist() == [100, 100, 0, 255]
