"""Parameters, MACs and speed-ups equal the published numbers and their exact arithmetic."""

from __future__ import annotations

import functools
from dataclasses import replace
from typing import Any

import pytest

from tests.train.runs import imagenet
from tread_lab.config import RunSpec, TrainSpec, decode
from tread_lab.config.recipe import ExecutionSpec
from tread_lab.cost import training
from tread_lab.cost.training import cost, report


def test_speed_ups_of_other_placements() -> None:
    assert round(cost(imagenet("XL", "0->10", "13->21")).speedup, 3) == 1.569  # two routes, 2025-01
    assert round(cost(imagenet("XL", "4->18")).speedup, 3) == 1.374  # "relative" placement


def test_route_ends_are_inclusive() -> None:
    """Early TREAD and sparse guidance count 12 n d^2 a block and leave out attention's 2 n^2 d."""

    def without_attention(spec: RunSpec) -> float:
        found = cost(spec)
        quadratic = sum(2 * n * n * spec.model.width for n in found.tokens)
        return (found.routed.network - quadratic) / 1e9

    close = functools.partial(pytest.approx, rel=1e-3)  # exclusive ends: 15.46 and 103.36
    assert without_attention(imagenet("B")) == close(21.81)
    assert without_attention(imagenet("B", "0->4", "6->9")) == close(13.65)
    assert without_attention(imagenet("XL")) == close(114.42)
    branches = [imagenet("XL", "2->24", rate=rate) for rate in (0.5, 0.9)]
    assert sum(map(without_attention, branches)) == close(97.67)


def test_totals_follow_from_the_parts() -> None:
    spec = imagenet(
        "S", "2->8", train=TrainSpec(steps=10, batch=32), execution=ExecutionSpec(micro_batch=8)
    )
    found = cost(spec)
    assert found.train_flops == 320 * 6 * found.routed.network
    assert found.weights_bytes == 4 * (32_858_896 + 256 * 384)
    assert found.checkpoint_bytes == found.weights_bytes + 12 * 32_858_896
    assert found.micro_batch == 8
    assert found.memory_bytes > found.checkpoint_bytes + 8 * found.activation_bytes
    shown, sizes = report(spec), ("weights_bytes", "checkpoint_bytes", "memory_bytes")
    stored = [shown[size.replace("memory_bytes", "memory_bytes_estimate")] for size in sizes]
    assert stored == [getattr(found, size) for size in sizes]
    between = cost(replace(spec, routes_from=2, routes_until=6))  # 4 of 10 steps are routed
    assert between.train_flops == 32 * 6 * (4 * found.routed.network + 6 * found.dense.network)
    none, dense = cost(replace(spec, routes_until=0)), cost(spec.dense())
    assert between.speedup == found.speedup > none.speedup == dense.speedup == 1


@pytest.mark.parametrize(("precision", "low"), [("bf16", 2), ("fp16", 2), ("tf32", 4), ("fp32", 4)])
def test_memory_is_the_sum_of_parts(precision: str, low: int) -> None:
    """S has d = 384, h = 1536, N = 256; a lower precision copies the weights."""
    P, micro = 32_858_896, ExecutionSpec(micro_batch=8)
    found = cost(imagenet("S", "2->8", precision=precision, execution=micro))
    assert found.cast_bytes == (2 * P if low == 2 else 0)
    assert found.working_bytes == 256 * (4 * 384 * 4 + 2 * 1536 * low)
    state = found.checkpoint_bytes + 4 * P + found.cast_bytes
    image = found.activation_bytes + found.working_bytes
    assert found.memory_at(3) == state + 3 * image
    assert found.memory_bytes == state + 8 * image
    whole = cost(imagenet("S", train=TrainSpec(batch=32), execution=ExecutionSpec(micro_batch=64)))
    assert whole.micro_batch == 32


def test_remembered_costs_are_the_costs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Beside those of runs that differ in one field alone."""
    base = {"model": {"depth": 12, "width": 32, "heads": 2}, "routes": ["2->8"]}
    changes: list[dict[str, Any]] = [
        {}, {"train": {"steps": 7}}, {"train": {"batch": 8}}, {"precision": "bf16"},
        {"model": {"depth": 10, "width": 32, "heads": 2}}, {"routes": ["2->7"]},
        {"routes_until": 0.5}, {"bypass": "sprint"}, {"loss": "ensemble"}, {"seed": 3},
        {"execution": {"micro_batch": 4}}, {"data": {"classes": 5}}, {"train": {"lr": 1e-5}},
    ]  # fmt: skip
    specs = [decode(RunSpec, {**base, **change}) for change in changes]
    remembered = [cost(spec) for spec in specs]
    for spec, price in zip(specs, remembered):
        monkeypatch.setattr(training, "_COSTS", {})
        assert cost(spec) == price
