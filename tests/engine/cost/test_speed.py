"""A speed is a line through the times of steps: what depends on FLOPs and what does not."""

from __future__ import annotations

from dataclasses import astuple, replace

import pytest

from tests.engine.runs import imagenet, measured_on_a_gpu
from tests.sweep.plans import tiny
from tread_lab.engine.cost.speed import (
    FLOPS,
    RATES,
    Speed,
    fitted,
    kind_of,
    rates_of,
    step_flops,
)
from tread_lab.engine.cost.training import cost
from tread_lab.specs import decode
from tread_lab.specs.evaluation import HeldoutSpec, SamplesSpec
from tread_lab.specs.model import ModelSpec
from tread_lab.specs.recipe import ExecutionSpec
from tread_lab.systems.mdt.spec import BothLoss

LATENTS = {"source": "latents", "path": "x", "channels": 4, "size": 16, "classes": 10}


def test_seconds_are_a_part_for_each_step_and_one_for_each_flop() -> None:
    """Passes go at the rate of a whole dense step, whose FLOPs devices share."""
    spec, speed = tiny(steps=20, routes=["0->3"]), Speed(overhead=2.0, per_flop=3.0)
    price = cost(spec)
    assert speed.train_seconds(spec) == 20 * 2.0 + 3.0 * price.train_flops
    assert FLOPS.train_seconds(spec) == price.train_flops
    dense = step_flops(spec.dense())
    assert speed.pass_seconds(spec, dense) == pytest.approx(2.0 + 3.0 * dense)
    assert speed.pass_seconds(spec, dense, 4) == pytest.approx(2.0 + 4 * 3.0 * dense)


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
    assert astuple(fitted(measured)) == pytest.approx((*expected, 1.0))


def test_placements_are_one_kind_of_different_flops() -> None:
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
    ("precision", "rate"), [("bf16", 121.68e12), ("tf32", 60.84e12), ("fp32", 7.605e12)]
)
def test_stated_rates_pay_each_kind_of_work_in_its_precision(precision: str, rate: float) -> None:
    """Steps in the run's, images in the sampler's, losses in fp32; features are paid elsewhere."""
    spec = replace(imagenet("S", "2->8"), precision=precision)
    tree = {"metrics": ["fid"], "count": 100, "sampler": {"precision": precision}}
    samples, losses, rates = decode(SamplesSpec, tree), HeldoutSpec(), RATES["A100"]
    assert rates.training[precision] == pytest.approx(rate)
    assert rates.pass_speedup(spec, samples) == pytest.approx(1.0)
    assert rates.pass_speedup(spec, losses) == pytest.approx(7.605e12 / rate)


def test_steps_measured_on_a_gpu_take_what_its_rates_say() -> None:
    for row, step in measured_on_a_gpu():
        seconds = RATES["H200"].speed(step).train_seconds(step)
        assert seconds == pytest.approx(row["ms"] / 1e3, rel=0.05), row["variant"]


def test_other_runs_than_the_measured_one_have_a_range() -> None:
    """By size, tokens, precision, pass, part of a system, share of a device, device."""
    b2, h200 = imagenet("B", "2->8", precision="bf16"), RATES["H200"]
    same = [(h200, b2, 0.5), (RATES["cpu"], imagenet("S"), 1.0)]
    others = [
        imagenet("S", precision="bf16"),
        imagenet("B", precision="fp32"),
        imagenet("B", "2->8", side=64),
    ]
    others += [imagenet("B", precision="bf16", execution=ExecutionSpec(micro_batch=64))]
    others += [imagenet("B", "2->8", precision="bf16", loss=BothLoss())]
    other = [(h200, b2, 2.0), (RATES["H100"], b2, 1.0), *((h200, run, 1.0) for run in others)]
    assert {rates.spread(*of) for rates, *of in same} == {(1.0, 1.0)}
    assert {rates.spread(*of) for rates, *of in other} == {(0.8, 1.5)}


def test_blocks_that_are_not_compiled_are_slower_on_a_gpu_alone() -> None:
    run = imagenet("B", execution=ExecutionSpec(compile="none"))
    for name, slower in (("H200", 0.39 / 0.28), ("cpu", 1.0)):
        eager, compiled = (RATES[name].speed(spec).per_flop for spec in (run, imagenet("B")))
        assert eager / compiled == pytest.approx(slower)
    mamba = replace(run, model=decode(ModelSpec, "Mamba-12x384/2"))
    auto = replace(mamba, execution=ExecutionSpec())
    assert RATES["H200"].speed(auto) == RATES["H200"].speed(mamba)


def test_rates_are_found_in_the_name_of_a_device() -> None:
    assert rates_of("cpu", "x86_64 x1 threads") is RATES["cpu"]
    for rates in (
        RATES["cpu"].training,
        RATES["cpu"].sampling,
    ):  # bf16 operands are multiplied by fp32 kernels
        assert rates["fp32"] / rates["bf16"] == pytest.approx(1.3, rel=0.01)
    assert rates_of("cuda", "NVIDIA H200") is RATES["H200"]
    assert rates_of("cuda", "NVIDIA GeForce") is None
    assert rates_of("cuda", "NVIDIA H100 80GB HBM3 MIG 1g.10gb") is None
