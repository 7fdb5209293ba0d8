"""The ADM evaluator's files, there and back."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from tread_lab.metrics.adm import read_moments, read_samples, write_samples
from tread_lab.metrics.frechet import Moments, frechet
from tread_lab.specs import UserError


@pytest.mark.parametrize("channels", [1, 3])
def test_samples_come_back_as_they_were(tmp_path: Path, channels: int) -> None:
    images = torch.randint(0, 256, (5, channels, 4, 6), dtype=torch.uint8)
    labels = torch.tensor([3, 1, 4, 1, 5])
    write_samples(tmp_path / "samples.npz", images, labels)
    found_images, found_labels = read_samples(tmp_path / "samples.npz")
    assert torch.equal(found_images, images)
    assert found_labels is not None and torch.equal(found_labels, labels)


def test_the_file_is_what_the_evaluator_reads(tmp_path: Path) -> None:
    images = torch.randint(0, 256, (5, 3, 4, 6), dtype=torch.uint8)
    write_samples(tmp_path / "samples.npz", images)
    with np.load(tmp_path / "samples.npz") as arrays:
        assert arrays.files == ["arr_0"]
        assert arrays["arr_0"].shape == (5, 4, 6, 3) and arrays["arr_0"].dtype == np.uint8
        assert arrays["arr_0"][2, 1, 3, 0] == images[2, 0, 1, 3]
    assert read_samples(tmp_path / "samples.npz")[1] is None


def test_reference_statistics_are_moments(tmp_path: Path) -> None:
    moments = Moments.of(np.random.default_rng(0).normal(size=(50, 8)))
    np.savez(tmp_path / "reference.npz", mu=moments.mu, sigma=moments.sigma, arr_0=np.zeros(3))
    assert frechet(read_moments(tmp_path / "reference.npz"), moments) == pytest.approx(0, abs=1e-9)


def test_files_that_are_something_else_are_one_line(tmp_path: Path) -> None:
    np.savez(tmp_path / "other.npz", arr_0=np.zeros((5, 4, 4, 3), np.float32), mu=np.zeros(3))
    (tmp_path / "bad.npz").write_bytes(b"PK\x03\x04")
    for read, name, says in (
        (read_samples, "other.npz", "holds no images"),
        (read_moments, "other.npz", "holds no statistics"),
        (read_samples, "bad.npz", "is damaged"),
        (read_moments, "gone.npz", "there is no"),
    ):
        with pytest.raises(UserError, match=says) as caught:
            read(tmp_path / name)
        assert name in str(caught.value) and "\n" not in str(caught.value)
