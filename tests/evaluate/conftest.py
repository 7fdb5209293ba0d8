"""Real images, few enough to score in a moment."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from tread_lab.config import DataSpec
from tread_lab.data import open_data
from tread_lab.data.content import sha256
from tread_lab.data.stored import Split
from tread_lab.evaluate import fidelity
from tread_lab.evaluate.features import Scorer
from tread_lab.evaluate.references import Reference


def images(split: Split, count: int) -> Tensor:
    samples = open_data(DataSpec(), split)
    return samples.pixels(samples.take(torch.arange(count))[0])


def score(
    generated: Tensor,
    real: Tensor | Reference,
    *,
    metrics: Sequence[str],
    extractor: str,
    cache: Path | None = None,
) -> dict[str, float]:
    """Metrics of images in memory by their names in the record; the real ones are held out."""
    if isinstance(real, Tensor):
        name = hashlib.sha256(real.contiguous().numpy().data).hexdigest()[:16]
        images, real = real, Reference(name, lambda: [images])
    how: Any = {"count": len(generated), "device": torch.device("cpu"), "cache": cache}
    scorer = Scorer(metrics, extractor, real, tuple(generated.shape[1:]), **how)
    scorer.add(generated)
    return scorer.scores()[0]


@pytest.fixture
def random_inception(random_inception_file: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Inception of random numbers, passed off as the published file."""
    monkeypatch.setattr(fidelity, "SHA256", sha256(random_inception_file))
    monkeypatch.setenv(fidelity.VARIABLE, str(random_inception_file))
    return random_inception_file


@pytest.fixture(scope="session")
def real() -> Tensor:
    """150 held-out images, uint8 [N, 1, 16, 16]."""
    return images("heldout", 150)


@pytest.fixture(scope="session")
def reference() -> Tensor:
    """400 training images."""
    return images("train", 400)
