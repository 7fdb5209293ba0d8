"""Intervals of paired gaps cover a known gap as often as they promise; pairing pays as reported."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from tread_lab.compare.gaps import Losses, PairedGap, gap_over_images, gap_over_seeds
from tread_lab.engine.evaluate import evaluate
from tread_lab.engine.train import train
from tread_lab.records.lab import Lab, RunFolder
from tread_lab.records.status import RunState
from tread_lab.specs import HeldoutSpec, RunSpec

GAP, ROUNDS = 0.3, 4000


def images(rng: np.random.Generator, *, skew: bool) -> PairedGap:
    """Two runs on the same 64 images at 4 levels: the images are hard or easy for both."""
    hard = 5 * rng.normal(size=(64, 1)) + rng.normal(size=(64, 4))
    own = rng.gamma(2.0, size=(64, 4)) - 2.0 if skew else rng.normal(size=(64, 4))
    return gap_over_images(hard + GAP + own, hard)


def seeds(rng: np.random.Generator, *, count: int) -> PairedGap:
    return gap_over_seeds(list(GAP + 0.1 * rng.normal(size=count)))


MAKERS: dict[str, Callable[[np.random.Generator], PairedGap]] = {
    "images": lambda rng: images(rng, skew=False),
    "skewed images": lambda rng: images(rng, skew=True),
    "2 seeds": lambda rng: seeds(rng, count=2),
    "3 seeds": lambda rng: seeds(rng, count=3),
    "10 seeds": lambda rng: seeds(rng, count=10),
}


@pytest.mark.parametrize("maker", MAKERS)
def test_intervals_cover_a_known_gap_95_times_in_100(maker: str) -> None:
    rng = np.random.default_rng(11)
    found = [MAKERS[maker](rng) for _ in range(ROUNDS)]
    covered = float(np.mean([gap.low <= GAP <= gap.high for gap in found]))
    assert 0.93 <= covered <= 0.97, covered


@pytest.fixture(scope="module")
def losses(tmp_path_factory: pytest.TempPathFactory) -> tuple[Losses, Losses]:
    """Held-out losses of a routed run and of its dense baseline, both really trained."""
    import torch

    from tests.engine.runs import small_run

    lab, measured = Lab(tmp_path_factory.mktemp("lab")), HeldoutSpec(images=400)
    recipe = {"steps": 40, "batch": 8, "lr": 3e-3, "ema": {"halflife": 0.1}}

    def trained(spec: RunSpec) -> Losses:
        folder: RunFolder = lab.run_of(spec)
        folder.create(spec)
        for _ in train(spec, folder, torch.device("cpu")):
            pass
        folder.finish(RunState.COMPLETED, step=spec.train.steps)
        evaluate(folder, measured, torch.device("cpu"))
        return Losses.read(folder.evaluation(measured).path / "losses.npz")

    return trained(small_run(train=recipe)), trained(small_run(train=recipe, routes=[]))


def test_pairing_shrinks_the_variance_of_a_real_gap_by_the_factor_that_is_reported(
    losses: tuple[Losses, Losses],
) -> None:
    """Gaps of many samples of images: both runs on the same ones, against each on its own."""
    routed, dense = (found.dense.mean(axis=1) for found in losses)
    rng, total, size = np.random.default_rng(5), len(routed), 40
    paired, apart = [], []
    for _ in range(4000):
        ours, theirs = (rng.integers(total, size=size) for _ in range(2))
        paired.append((routed[ours] - dense[ours]).mean())
        apart.append(routed[ours].mean() - dense[theirs].mean())
    reported = gap_over_images(losses[0].dense, losses[1].dense).kept
    assert reported < 0.1
    assert np.var(paired) / np.var(apart) == pytest.approx(reported, rel=0.15)
