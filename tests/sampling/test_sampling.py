"""Claims about solvers and generation; guidance has its own file."""

from __future__ import annotations

import math
from itertools import pairwise

import pytest
import torch
from torch import Tensor

from tests.systems.test_bypasses import woken
from tread_lab import draws
from tread_lab.diffusion import EDM
from tread_lab.sampling.generate import IMAGES_A_CALL, _step_noise, generate, place, progress
from tread_lab.sampling.solvers import euler, heun
from tread_lab.specs import EDMSpec, GuidanceSpec, RunSpec, SamplerSpec, decode

DATA_STD = 0.5


def exact_velocity(z: Tensor, sigma: Tensor) -> Tensor:
    """dz/dsigma where data are N(0, DATA_STD^2): D = z s^2 / (s^2 + sigma^2)."""
    return z * sigma / (DATA_STD**2 + sigma**2)


def error_of(solver, steps: int) -> float:
    """Against z(sigma) = z0 sqrt((s^2 + sigma^2) / (s^2 + sigma_max^2)), from 10 down to 0.02."""
    ramp = torch.linspace(0, 1, steps + 1, dtype=torch.float64)
    levels = (10 ** (1 / 7) + ramp * (0.02 ** (1 / 7) - 10 ** (1 / 7))) ** 7
    z0 = torch.ones(1, 1, 1, 1, dtype=torch.float64)
    exact = math.sqrt((DATA_STD**2 + 0.02**2) / (DATA_STD**2 + 10**2))
    return abs(float(solver(exact_velocity, z0, levels)) - exact)


@pytest.mark.parametrize(("solver", "order"), [(euler, 1), (heun, 2)])
def test_halving_the_steps_divides_the_error_by_the_order_promised(solver, order: int) -> None:
    errors = [error_of(solver, steps) for steps in (32, 64, 128)]
    for coarse, fine in pairwise(errors):
        assert math.log2(coarse / fine) == pytest.approx(order, abs=0.25)


@pytest.mark.parametrize(("steps", "accuracy"), [(40, 1.1e-2), (160, 1e-3)])
def test_heun_reaches_the_exact_solution_on_edms_own_grid(steps: int, accuracy: float) -> None:
    levels = EDM(EDMSpec()).grid(SamplerSpec(steps=steps))
    z0 = torch.ones(1, 1, 1, 1, dtype=torch.float64)
    exact = math.sqrt(DATA_STD**2 / (DATA_STD**2 + 80.0**2))
    assert float(heun(exact_velocity, z0, levels)) == pytest.approx(exact, rel=accuracy)


def network(x: Tensor, t: Tensor, y: Tensor, routing: object) -> Tensor:
    """Linear in z and in the label."""
    return 0.3 * x + 0.1 * y[:, None, None, None].float() + t[:, None, None, None]


def drawn(sampler: SamplerSpec, count: int, batch: int) -> list[tuple[Tensor, Tensor]]:
    parts = generate(
        {None: network},
        EDM(EDMSpec()),
        sampler,
        count=count,
        shape=(1, 4, 4),
        classes=10,
        device=torch.device("cpu"),
        batch=batch,
    )
    return list(parts)


def images(count: int, batch: int, seed: int = 7) -> tuple[Tensor, Tensor]:
    sampler = SamplerSpec(steps=4, seed=seed, guidance=GuidanceSpec(weight=1.5))
    x, y = zip(*drawn(sampler, count, batch))
    return torch.cat(x), torch.cat(y)


@torch.no_grad()
def test_smaller_network_calls_give_the_same_images_bitwise() -> None:
    spec = decode(RunSpec, {"model": {"depth": 2, "width": 32, "heads": 2}, "precision": "fp32"})
    tiny = woken(spec)

    def sampled(batch: int | None) -> Tensor:
        parts = generate(
            {None: tiny},
            EDM(EDMSpec()),
            SamplerSpec(steps=2, sigma_max=10),
            count=300,
            shape=(1, 16, 16),
            classes=10,
            device=torch.device("cpu"),
            batch=batch,
        )
        return torch.cat([x for x, _ in parts])

    before = sampled(256)
    assert all(torch.equal(sampled(batch), before) for batch in (128, 64, None))


def test_a_cpu_takes_fewer_images_a_call_than_a_gpu() -> None:
    calls: list[int] = []

    def watched(x: Tensor, t: Tensor, y: Tensor, routing: object) -> Tensor:
        calls.append(len(x))
        return x

    sampler = SamplerSpec(steps=1, solver="euler")
    list(
        generate(
            {None: watched},
            EDM(EDMSpec()),
            sampler,
            count=100,
            shape=(1, 4, 4),
            classes=10,
            device=torch.device("cpu"),
        )
    )
    assert calls == [64, 36]
    assert IMAGES_A_CALL == {"cpu": 64, "cuda": 256}


def test_balanced_labels_take_their_turns() -> None:
    sampler = SamplerSpec(steps=1, labels="balanced")
    labels = torch.cat([y for _, y in drawn(sampler, 25, batch=8)])
    assert torch.bincount(labels).tolist() == [3] * 5 + [2] * 5
    later = SamplerSpec(steps=1, labels="balanced", seed=7)
    assert torch.cat([y for _, y in drawn(later, 4, batch=8)]).tolist() == [0, 1, 2, 3]


def test_images_from_a_later_one_on_are_those_of_the_whole_set() -> None:
    def some(start: int) -> tuple[Tensor, Tensor]:
        cpu = torch.device("cpu")
        sampler = SamplerSpec(steps=2, seed=7)
        parts = generate(
            {None: network}, EDM(EDMSpec()), sampler, count=5, shape=(1, 2, 2), classes=10,
            device=cpu, batch=2, start=start,
        )  # fmt: skip
        x, y = zip(*parts)
        return torch.cat(x), torch.cat(y)

    (x, y), (late_x, late_y) = some(0), some(3)
    assert (len(x), len(late_x)) == (5, 2)
    assert torch.equal(x[3:], late_x) and torch.equal(y[3:], late_y)


def test_a_label_and_the_noise_of_a_step_are_of_the_images_own_seed() -> None:
    _, labels_B = images(20, batch=20)
    assert labels_B.tolist() == [
        int(torch.randint(10, (1,), generator=draws.generator("label", 7 + k))) for k in range(20)
    ]
    assert len(set(labels_B.tolist())) > 3
    noise = _step_noise((1, 2, 2), range(3, 5), torch.device("cpu"), 6)
    expected = [draws.normal((1, 2, 2), "image", seed, "step", 6) for seed in (3, 4)]
    assert noise.dtype == torch.float64 and torch.equal(noise, torch.stack(expected).double())


def test_solvers_work_in_float64_and_images_are_fp32(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[torch.dtype] = []

    def solver(field: object, z_BCHW: Tensor, levels: Tensor) -> Tensor:
        seen.extend((z_BCHW.dtype, levels.dtype))
        return z_BCHW

    monkeypatch.setattr("tread_lab.sampling.generate.SOLVERS", {"heun": solver})
    ((x_BCHW, _),) = drawn(SamplerSpec(steps=2), 2, batch=2)
    assert seen == [torch.float64, torch.float64] and x_BCHW.dtype == torch.float32


def test_the_place_and_the_share_of_a_level() -> None:
    levels = torch.tensor([4.0, 2.0, 1.0, 0.0])
    assert [place(levels, level) for level in (4.0, 3.0, 2.0, 1.0, 0.5, 0.0)] == [0, 1, 1, 2, 3, 3]
    assert [progress(index, 3) for index in range(3)] == [0.0, 0.5, 1.0]
    assert progress(0, 1) == 0.0
