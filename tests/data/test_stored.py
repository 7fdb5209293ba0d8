"""Posteriors and mirrored latents of packed arrays, drawn anew in each step, paired and resumed."""

from __future__ import annotations

import dataclasses
import functools
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from tests.data.conftest import LATENTS, opened
from tread_lab import draws
from tread_lab.config import DataSpec
from tread_lab.data.stored import MOST_HELDOUT, ScaledLatents, Store, split_ids

_open = functools.partial(opened, "latents", scale=0.5)


@pytest.fixture
def moments(packed: Path) -> Path:
    """Packed arrays with log-variances of ln 4 and mirrored moments, which are 100 higher."""
    (packed / "latents.npy").unlink()
    both = np.concatenate([LATENTS, np.full_like(LATENTS, np.log(4))], axis=1)
    np.save(packed / "moments.npy", both)
    np.save(packed / "moments_flip.npy", both + np.float16(100))
    return packed


def test_step_sees_a_sample_of_posterior(moments: Path) -> None:
    samples, ids = _open(moments, flips=False), torch.arange(38)
    mean_BCHW, _ = samples.take(ids)
    drawn_BCHW, labels_B = samples.redraw(ids, 5, "sample", 9)
    noise_BCHW = draws.normal((38, 4, 8, 8), 5, "sample", 9, "posterior")
    deviation = float(np.exp(0.5 * np.float64(np.float16(np.log(4)))))
    expected_BCHW = mean_BCHW.double() + 0.5 * deviation * noise_BCHW.double()
    assert (drawn_BCHW.double() - expected_BCHW).abs().max() < 1e-5
    assert labels_B.tolist() == samples.take(ids)[1].tolist()
    fixed = _open(moments, flips=False, posterior="mean")
    assert torch.equal(fixed.redraw(ids, 5, "sample", 9)[0], mean_BCHW)


class Stored(Store):
    """Samples [1, 2, 4] of which each is its number, mirrored ones the negative."""

    shape, flips = (1, 2, 4), True
    labels = np.zeros(100, np.int64)

    def __init__(self) -> None:
        pass

    def read(self, ids: np.ndarray, mirrored: np.ndarray | None = None) -> np.ndarray:
        signs = 1.0 if mirrored is None else np.where(mirrored, -1.0, 1.0)
        values = (ids + 1.0) * signs
        return np.broadcast_to(values[:, None, None, None], (len(ids), 1, 2, 4)).astype(np.float32)


def test_sample_is_mirrored_by_its_draw() -> None:
    spec = DataSpec(source="latents", channels=1, size=2, classes=7, scale=2.0)
    store: Any = Stored()
    latents = ScaledLatents(store, spec)
    assert latents.image_shape is None  # without a decoder
    x_BCHW, _ = latents.redraw(torch.arange(100), 3, "sample", 1)
    low_B = draws.uniform((100,), 3, "sample", 1, "flip") < 0.5
    signs_B = torch.where(low_B, -1.0, 1.0)
    assert torch.equal(x_BCHW[:, 0, 0, 0], signs_B * 2 * (torch.arange(100) + 1))
    assert not torch.equal(latents.redraw(torch.arange(100), 3, "sample", 2)[0], x_BCHW)
    plain = ScaledLatents(store, dataclasses.replace(spec, flips=False))
    assert (plain.redraw(torch.arange(100), 3, "sample", 1)[0] > 0).all()


@pytest.mark.parametrize(
    ("n", "count", "first"),
    [
        (2, 1, [1]),
        (40, 2, [10, 30]),
        (61, 3, [10, 30, 50]),
        (1_281_167, MOST_HELDOUT, [64, 192, 320]),
    ],
)
def test_held_out_samples_are_evenly_spread(n: int, count: int, first: list[int]) -> None:
    heldout, train = split_ids(n, "heldout").tolist(), split_ids(n, "train").tolist()
    assert len(heldout) == count and heldout[:3] == first
    assert train == sorted(train) and sorted(heldout + train) == list(range(n))
    assert split_ids(n, "all").tolist() == list(range(n))
