"""The inception score against ADM's definition, written out a second time."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.special
import torch
from numpy.typing import NDArray

from tread_lab.evaluate.inception_score import SplitSums


def logits(count: int, classes: int = 100) -> NDArray[np.float32]:
    return np.random.default_rng(0).normal(0, 2.5, (count, classes)).astype(np.float32)


def adm(logits_NK: NDArray[np.float32], split: int) -> float:
    """openai/guided-diffusion: softmax, splits in file order, mean of exp(KL)."""
    p_NK = scipy.special.softmax(logits_NK.astype(np.float64), axis=1)
    scores = []
    for start in range(0, len(p_NK), split):
        part = p_NK[start : start + split]
        divergence = scipy.special.rel_entr(part, part.mean(axis=0, keepdims=True)).sum(axis=1)
        scores.append(np.exp(divergence.mean()))
    return float(np.mean(scores))


def summed(logits_NK: NDArray[np.floating], batch: int = 777) -> float:
    sums = SplitSums()
    for part in torch.from_numpy(logits_NK).split(batch):
        sums.add(part)
    return sums.score


@pytest.mark.parametrize("count", [10_000, 5_100])  # a last shorter split counts like the others
def test_sums_of_splits_give_adms_inception_score(count: int) -> None:
    assert summed(logits(count)) == pytest.approx(adm(logits(count), 5_000), rel=1e-6)


def test_images_that_are_all_likelier_or_less_likely_change_nothing() -> None:
    x = logits(40)
    shifted = x + np.linspace(-5000, 5000, 40)[:, None]
    assert summed(shifted) == pytest.approx(summed(x), rel=1e-6)
