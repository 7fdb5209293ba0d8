"""A speed is a line through the times of steps: what depends on FLOPs and what does not."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from tests.engine.runs import imagenet
from tread_lab.engine.cost.sampling import passes
from tread_lab.engine.cost.speed import (
    FLOPS,
    RATES,
    Speed,
    fitted_step,
    kind_of,
    rates_of,
    step_flops,
)
from tread_lab.engine.cost.training import cost
from tread_lab.specs import RunSpec, decode
from tread_lab.specs.evaluation import HeldoutSpec, SamplesSpec

LATENTS = {"source": "latents", "path": "x", "channels": 4, "size": 16, "classes": 10}


def test_features_take_time_only_where_images_are_measured(tiny: Callable[..., RunSpec]) -> None:
    speed = Speed(overhead=0, per_flop=0, call=0, per_call_flop=0)
    measured, shown = (
        decode(SamplesSpec, {"metrics": metrics, "count": 1000}) for metrics in (["fd"], [])
    )
    assert speed.evaluate_seconds(tiny(), measured) == 1.5  # 1.5 ms an image
    assert speed.evaluate_seconds(tiny(), shown) == 0


def test_seconds_are_a_part_for_each_call_and_one_for_each_flop(
    tiny: Callable[..., RunSpec],
) -> None:
    spec, speed = tiny(steps=20), Speed(overhead=2.0, per_flop=3.0, call=5.0, per_call_flop=7.0)
    price = cost(spec)
    assert speed.train_seconds(spec) == 20 * 2.0 + 3.0 * price.train_flops
    losses = HeldoutSpec(images=200, levels=3)  # two batches
    flops = 200 * 3 * 2 * price.dense.network
    assert speed.evaluate_seconds(spec, losses) == 6 * 5.0 + 7.0 * flops
    assert FLOPS.train_seconds(spec) == price.train_flops
    steps = [(1e9, 0.4), (2e9, 0.6)]  # 0.2 s of each step are no FLOPs': a third of them a call's
    four = decode(SamplesSpec, {"count": 256, "sampler": {"solver": "euler", "steps": 1}})
    seconds = [Speed.of_steps(steps, on).evaluate_seconds(spec, four) for on in ("cpu", "cuda")]
    assert seconds[0] - seconds[1] == pytest.approx(3 * 0.2 / 3)  # 4 calls of 64, 1 of 256
    assert FLOPS.evaluate_seconds(spec, losses) == flops
    of_four = Speed.of_steps(steps, devices=4)  # of which the first makes losses alone
    assert of_four.evaluate_seconds(spec, four) == pytest.approx(
        seconds[0] - 3 * 0.2 / 3  # a call of 64 each
    )
    losses_alone = Speed.of_steps([(f, 4 * s) for f, s in steps]).evaluate_seconds(spec, losses)
    shared = Speed.of_steps(steps).of_several(1, sharing=4)  # by runs that each have a quarter
    host = 0.2 / 3 * 4  # of each call, whoever computes beside it
    assert shared.evaluate_seconds(spec, four) - host == pytest.approx(4 * (seconds[0] - host))
    calls = 6 * (4 - 1) * 0.2 / 3
    assert of_four.evaluate_seconds(spec, losses) == pytest.approx(losses_alone - calls)


@pytest.mark.parametrize(
    ("measured", "expected"),
    [
        ([(1e9, 0.3), (2e9, 0.5)], (0.1, 2e-10)),
        ([(1e9, 0.3), (2e9, 0.5), (2e9, 9.0), (2e9, 0.4)], (0.1, 2e-10)),  # the median of each
        ([(1e9, 0.3), (1e9, 0.5)], (0.0, 4e-10)),  # a single count tells no overhead
        ([(1e9, 0.4), (0.5e9, 0.1)], (0.0, 4e-10)),  # faster than its FLOPs: none is below zero
        ([(1e9, 0.4), (0.5e9, 0.39)], (0.32, 0.8e-10)),  # hardly faster: a fifth scales with FLOPs
    ],
)
def test_flop_counts_tell_the_overhead_and_noise_leaves_a_sensible_line(
    measured: list[tuple[float, float]], expected: tuple[float, float]
) -> None:
    assert fitted_step(measured) == pytest.approx(expected)


def test_placements_are_one_kind_of_different_flops(tiny: Callable[..., RunSpec]) -> None:
    routed, small = tiny(routes=["0->3"]), {"depth": 3, "width": 16, "heads": 2}
    assert kind_of(routed) == kind_of(tiny(seed=1)) and step_flops(routed) < step_flops(tiny())
    other: tuple[dict[str, object], ...] = (
        {"execution": {"micro_batch": 4}}, {"precision": "bf16"}, {"train": {"batch": 16}},
        {"model": small}, {"loss": "both", "routes": ["0->3"]}, {"data": {**LATENTS, "size": 8}},
        {"data": {**LATENTS, "channels": 8}}, {"execution": {"compile": "blocks"}},
        {"repa": {"encoder": "fashion16-v1"}}, {"repa": {"encoder": "dinov2-small"}},
    )  # fmt: skip
    kinds = [kind_of(tiny(**more)) for more in ({}, {"data": LATENTS}, *other)]
    assert len({*kinds}) == len(kinds)


@pytest.mark.parametrize(
    ("precision", "training", "sampling"),
    [("bf16", 78e12, 93.6e12), ("tf32", 39e12, 46.8e12), ("fp32", 4.875e12, 5.85e12)],
)
def test_stated_rates_pay_each_kind_of_work_in_its_precision(
    precision: str, training: float, sampling: float
) -> None:
    """Steps in the run's, images in the sampler's, losses in fp32; features are paid elsewhere."""
    spec = replace(imagenet("S", "2->8"), precision=precision)
    tree = {"metrics": ["fid"], "count": 100, "sampler": {"precision": precision}}
    samples, losses = decode(SamplesSpec, tree), HeldoutSpec()
    speed = RATES["A100"].speed(precision)
    assert speed.train_seconds(spec) == pytest.approx(cost(spec).train_flops / training)
    flops = [passes(spec, evaluation)[1] for evaluation in (samples, losses)]
    assert speed.evaluate_seconds(spec, samples) == pytest.approx(flops[0] / sampling)
    assert speed.evaluate_seconds(spec, losses) == pytest.approx(flops[1] / 5.85e12)


def test_rates_are_found_in_the_name_of_a_device() -> None:
    assert rates_of("cpu", "x86_64 x1 threads") is RATES["cpu"]
    assert rates_of("cuda", "NVIDIA H200") is RATES["H200"]
    assert rates_of("cuda", "NVIDIA GeForce") is None
    assert rates_of("cuda", "NVIDIA H100 80GB HBM3 MIG 1g.10gb") is None
