"""The embedded images in model space and back."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from tread_lab.data.embedded import ASSET, Fashion16
from tread_lab.data.stored import Split


def _stored(name: str) -> np.ndarray:
    from importlib.resources import files

    with (files("tread_lab.data") / "assets" / ASSET).open("rb") as file:
        array: np.ndarray = np.load(file)[name]
    return array


@pytest.mark.parametrize(
    ("split", "part", "n"), [("train", "train", 20_000), ("heldout", "test", 10_000)]
)
def test_pixels_gives_back_the_nearest_stored_level(split: Split, part: str, n: int) -> None:
    samples = Fashion16(split)
    x_NCHW, labels_N = samples.take(torch.arange(n))
    assert len(samples) == n and x_NCHW.dtype == torch.float32
    step = (x_NCHW.max() - x_NCHW.min()) / 255  # both black and white are there
    for off in (-0.4, 0.0, 0.4):
        shown_NCHW = samples.pixels(x_NCHW + off * step)
        assert np.array_equal(shown_NCHW[:, 0].numpy(), _stored(f"{part}_images"))
    assert np.array_equal(labels_N.numpy(), _stored(f"{part}_labels"))
    assert labels_N.dtype == torch.int64


def test_images_have_mean_0_deviation_half() -> None:
    train, heldout = Fashion16("train"), Fashion16("heldout")
    x_NCHW, _ = train.take(torch.arange(20_000))
    assert abs(x_NCHW.double().mean().item()) < 1e-5
    assert x_NCHW.double().std(correction=0).item() == pytest.approx(0.5, abs=1e-6)
    black = torch.tensor([0])
    assert train.take(black)[0].min() == heldout.take(black)[0].min()
    assert train.fingerprint != heldout.fingerprint == Fashion16("heldout").fingerprint
