"""A speed is a line through the times of steps: what depends on FLOPs and what does not."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tread_lab.engine.cost.speed import FLOPS, Speed, fitted_step, kind_of, step_flops
from tread_lab.engine.cost.training import cost
from tread_lab.specs import RunSpec, decode
from tread_lab.specs.evaluation import HeldoutSpec, SamplesSpec


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
    flops = 200 * 3 * 2 * price.dense_macs
    assert speed.evaluate_seconds(spec, losses) == 6 * 5.0 + 7.0 * flops
    assert FLOPS.train_seconds(spec) == price.train_flops
    steps = [(1e9, 0.4), (2e9, 0.6)]  # 0.2 s of each step are no FLOPs': a third of them a call's
    four = decode(SamplesSpec, {"count": 256, "sampler": {"solver": "euler", "steps": 1}})
    seconds = [Speed.of_steps(steps, on).evaluate_seconds(spec, four) for on in ("cpu", "cuda")]
    assert seconds[0] - seconds[1] == pytest.approx(3 * 0.2 / 3)  # 4 calls of 64, 1 of 256
    assert FLOPS.evaluate_seconds(spec, losses) == flops


def test_two_flop_counts_tell_the_overhead() -> None:
    assert fitted_step([(1e9, 0.3), (2e9, 0.5)]) == pytest.approx((0.1, 2e-10))
    medians = [(1e9, 0.3), (2e9, 0.5), (2e9, 9.0), (2e9, 0.4)]
    assert fitted_step(medians) == pytest.approx((0.1, 2e-10))


def test_one_flop_count_tells_no_overhead() -> None:
    assert fitted_step([(1e9, 0.3), (1e9, 0.5)]) == pytest.approx((0.0, 4e-10))


@pytest.mark.parametrize(
    ("fast", "expected"),
    [
        (0.1, (0.0, 4e-10)),  # faster than its FLOPs: no overhead is below zero
        (0.39, (0.32, 0.8e-10)),  # hardly faster: a fifth of the time scales with FLOPs
    ],
)
def test_noise_leaves_a_sensible_line(fast: float, expected: tuple[float, float]) -> None:
    assert fitted_step([(1e9, 0.4), (0.5e9, fast)]) == pytest.approx(expected)


def test_steps_alone_take_a_pass_to_be_a_third() -> None:
    assert Speed.of_steps([(1e9, 0.3), (2e9, 0.6), (3e9, 0.9)]) == Speed(
        pytest.approx(0.0, abs=1e-9), pytest.approx(3e-10), pytest.approx(0), pytest.approx(3e-10)
    )


def test_placements_are_one_kind_of_different_flops(tiny: Callable[..., RunSpec]) -> None:
    routed = tiny(routes=["0->3"])
    assert kind_of(routed) == kind_of(tiny()) and step_flops(routed) < step_flops(tiny())
    assert kind_of(tiny(execution={"micro_batch": 4})) != kind_of(tiny())
