"""What is measured inside a trained network."""

from __future__ import annotations

import math
from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor

from tests.train.runs import CPU, finished, small_run
from tread_lab import draws
from tread_lab.config import HeldoutSpec, SimilaritySpec
from tread_lab.diffusion import build_process
from tread_lab.evaluate.probes import (
    BATCH,
    heldout_losses,
    layer_similarity,
)
from tread_lab.routing import draw_routing
from tread_lab.train.assemble import Trained, fresh_network


class Noise:
    """Samples that need no data set."""

    preview = False

    def __init__(self) -> None:
        self.taken: list[int] = []

    def __len__(self) -> int:
        return 1000

    def take(self, ids: Tensor) -> tuple[Tensor, Tensor]:
        self.taken += ids.tolist()
        x_BCHW = torch.randn(len(ids), 1, 16, 16, generator=torch.Generator().manual_seed(0))
        return x_BCHW, torch.zeros(len(ids), dtype=torch.long)


@pytest.fixture
def model() -> Trained:
    spec = small_run()
    return Trained(spec, 0, fresh_network(spec).eval(), build_process(spec.process), CPU)


def test_layer_similarity_is_of_middle_levels(model: Trained) -> None:
    """EDM's ln(sigma) is N(-1.2, 1.2^2); its quartiles lie .67449 deviations off the mean."""
    samples: Any = Noise()
    matrices, levels = finished(
        layer_similarity(model, samples, SimilaritySpec(images=2, levels=2))
    )
    assert levels == pytest.approx([0.134071, 0.676643], rel=1e-4)
    assert matrices.shape == (2, 4, 4)
    assert matrices[0].diagonal() == pytest.approx(1.0, abs=1e-5)


def test_each_image_meets_every_level_bin(model: Trained) -> None:
    samples: Any = Noise()
    found = finished(heldout_losses(model, samples, HeldoutSpec(images=BATCH + 2, levels=2)))
    assert found.level_ML.shape == (BATCH + 2, 2)
    assert len(set(found.level_ML[:, 0].tolist())) == BATCH + 2
    low, high = (found.level_ML < math.exp(-1.2)).T  # the median of the levels
    assert low.all() and not high.any()
    with torch.no_grad():  # the second chunk, whose draws are named by its first image
        for bin in range(2):
            key, (x_BCHW, y_B) = ("heldout", BATCH, bin), samples.take(torch.arange(2))
            level_B = torch.from_numpy(found.level_ML[BATCH:, bin])
            noise_BCHW = draws.normal((2, 1, 16, 16), *key, "noise")
            for routing, losses_ML in (
                (None, found.dense_ML),
                (draw_routing(model.spec.routes, (2, 16), *key), found.routed_ML),
            ):
                network = partial(model.network, y_B=y_B, routing=routing)
                terms = model.process.loss_terms(network, x_BCHW, noise_BCHW, level_B)
                assert losses_ML is not None
                assert losses_ML[BATCH:, bin] == pytest.approx(terms.loss().numpy(), rel=1e-5)


@pytest.mark.parametrize(
    ("drop", "with_text", "seen"),
    [(0.9, False, [0, 0]), (1, False, [10, 10]), (0.9, True, [0, 1]), (1, True, [9, 9])],
)
def test_unlabelled_network_is_measured_without_labels(
    drop: float, with_text: bool, seen: list[int]
) -> None:
    samples: Any = Noise()
    spec, found = small_run(train={"label_drop": drop}, routes=[]), []

    def network(z_BCHW: Tensor, t_B: Tensor, y_B: Tensor, *_: Any) -> Tensor:
        found.extend(y_B.tolist())
        return z_BCHW

    rest: Any = network, build_process(spec.process), CPU, "", Rows() if with_text else None
    finished(heldout_losses(Trained(spec, 0, *rest), samples, HeldoutSpec(images=2, levels=1)))
    assert found == seen


class Rows:
    """A condition whose rows are their numbers."""

    def __len__(self) -> int:
        return 9

    def of(self, ids_B: Tensor) -> Tensor:
        return ids_B
