"""The Frechet distance against independent computations."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.linalg
import torch
import torch_fidelity
from torch import Tensor

from tests.metrics.conftest import Images
from tread_lab.metrics.features import Reference, features, score
from tread_lab.metrics.frechet import Moments, frechet

OWN = "fashion16-v1"


def _by_square_root(a: Moments, b: Moments) -> float:
    root = scipy.linalg.sqrtm(a.sigma @ b.sigma)
    apart = a.mu - b.mu
    return float(apart @ apart + np.trace(a.sigma + b.sigma - 2 * root.real))


def test_three_computations_of_the_distance_agree(real: Tensor, reference: Tensor) -> None:
    moments = [Moments.of(features(x, extractor=OWN).numpy()) for x in (real, reference)]
    theirs = torch_fidelity.calculate_metrics(
        input1=Images(real),
        input2=Images(reference),
        feature_extractor=OWN,
        fid=True,
        cuda=False,
        cache=False,
        save_cpu_ram=True,
        verbose=False,
    )["frechet_inception_distance"]
    ours = frechet(*moments)
    scored = score(real, Reference.of(reference), metrics=["fd"], extractor=OWN)
    assert ours == pytest.approx(theirs, rel=1e-6)
    assert ours == pytest.approx(_by_square_root(*moments), rel=1e-6)
    assert scored == {f"fd[{OWN}]@300": pytest.approx(ours, rel=1e-6)}


def test_gaussians_that_commute_have_a_closed_form() -> None:
    rng = np.random.default_rng(0)
    a, b = rng.uniform(0.1, 2, (2, 20))
    turn = np.linalg.qr(rng.normal(size=(20, 20)))[0]
    apart = rng.normal(size=20)
    found = frechet(Moments(np.zeros(20), turn * a @ turn.T), Moments(apart, turn * b @ turn.T))
    assert found == pytest.approx(apart @ apart + ((np.sqrt(a) - np.sqrt(b)) ** 2).sum(), rel=1e-12)


def test_equal_sets_are_at_distance_zero_even_with_fewer_samples_than_features() -> None:
    features_ND = torch.randn(20, 64, generator=torch.Generator().manual_seed(0)).numpy()
    moments = Moments.of(features_ND)
    assert abs(frechet(moments, moments)) < 1e-5
