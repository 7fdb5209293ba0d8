"""DDPM against the formulas of its papers in float64 NumPy: loss, variance term, both samplers."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
import torch
from torch import Tensor

from tests.diffusion.images import drawn
from tread_lab import draws
from tread_lab.config import DDPMSpec, EDMSpec, GuidanceSpec, SamplerSpec
from tread_lab.diffusion import DDPM, EDM

BETA = np.linspace(1e-4, 0.02, 1000)
ABAR = np.cumprod(1 - BETA)
SHAPE = (4, 4, 4)

ddpm = DDPM(DDPMSpec())


def log_normal_cdf(x: np.ndarray) -> np.ndarray:
    return 0.5 * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))


def posterior(beta: np.ndarray, abar: np.ndarray, t: int) -> tuple[float, float, float, float]:
    """Coefficients of x0 and x_t in the posterior's mean, and log betatilde, log beta (Ho et al.,
    eq. 7; betatilde_2 where betatilde_1 is 0). t counts from 0."""
    before = np.append(1.0, abar[:-1])
    c0 = math.sqrt(before[t]) * beta[t] / (1 - abar[t])
    ct = math.sqrt(1 - beta[t]) * (1 - before[t]) / (1 - abar[t])
    variance = beta * (1 - before) / (1 - abar)
    return c0, ct, math.log(variance[max(t, 1)]), math.log(beta[t])


def reference_loss(
    x0: np.ndarray, eps: np.ndarray, eps_hat: np.ndarray, v: np.ndarray, t: int
) -> float:
    """L_simple + L_vlb of one sample, in bits (Nichol & Dhariwal 2021, eq. 4-7, 15, 16)."""
    x_t = math.sqrt(ABAR[t]) * x0 + math.sqrt(1 - ABAR[t]) * eps
    c0, ct, low, high = posterior(BETA, ABAR, t)
    x0_hat = (x_t - math.sqrt(1 - ABAR[t]) * eps_hat) / math.sqrt(ABAR[t])
    mean, true = c0 * x0_hat + ct * x_t, c0 * x0 + ct * x_t
    log_var = (v + 1) / 2 * high + (1 - (v + 1) / 2) * low
    if t > 0:
        ratio = np.exp(low - log_var)
        nats = 0.5 * (-1 + log_var - low + ratio + (true - mean) ** 2 * np.exp(-log_var))
    else:
        inverse = np.exp(-0.5 * log_var)
        plus = log_normal_cdf(inverse * (x0 - mean + 1 / 255))
        minus = log_normal_cdf(inverse * (x0 - mean - 1 / 255))
        mass = np.where(x0 < -0.999, plus, np.where(x0 > 0.999, 1 - minus, plus - minus))
        nats = -np.log(np.maximum(mass, 1e-12))
    return float(((eps_hat - eps) ** 2).mean() + (nats / math.log(2)).mean())


@pytest.mark.parametrize("t", [0, 1, 2, 250, 998, 999])
def test_loss_is_that_of_the_formulas(t: int) -> None:
    rng = np.random.default_rng(t)
    x0 = np.clip(rng.normal(0, 0.7, (1, *SHAPE)), -1, 1)
    eps, off, v = rng.normal(size=(3, 1, *SHAPE))
    eps_hat = eps + 0.1 * off
    out = torch.from_numpy(np.concatenate([eps_hat, v], axis=1))
    level_B = ddpm.level(torch.tensor([(t + 0.5) / 1000]))
    x, noise = torch.from_numpy(x0), torch.from_numpy(eps)
    loss = ddpm.loss_terms(lambda z, s: out, x, noise, level_B.double()).loss()
    assert float(loss) == pytest.approx(reference_loss(x0, eps, eps_hat, v, t), rel=2e-5)
    exact_B = ddpm.sigma[t : t + 1]
    loss = ddpm.loss_terms(lambda z, s: out, x, noise, exact_B).loss()
    assert float(loss) == pytest.approx(reference_loss(x0, eps, eps_hat, v, t), rel=1e-9)
    single = (tensor.float() for tensor in (x, noise, level_B))
    loss = ddpm.loss_terms(lambda z, s: out.float(), *single).loss()
    assert float(loss) == pytest.approx(reference_loss(x0, eps, eps_hat, v, t), rel=2e-3)


def test_t_is_uniform() -> None:
    assert torch.equal(ddpm.level((torch.arange(1000) + 0.5) / 1000), ddpm.sigma.float())
    assert ddpm.level(torch.tensor([1.0])) == ddpm.sigma[-1].float()  # rounded up, as in a probe


def test_fixed_variance_is_that_of_beta() -> None:
    """In x, from t = 10 to 5: 1 - abar_10 / abar_5, in z divided by abar_5."""
    process = DDPM(DDPMSpec(learned_variance=False))
    z = torch.ones(1, *SHAPE).double()
    _, deviation = process.reverse(z, z, process.sigma[9], process.sigma[4])
    assert float(deviation) ** 2 == pytest.approx((1 - ABAR[9] / ABAR[4]) / ABAR[4])


def test_the_variance_term_trains_v_alone() -> None:
    out = torch.randn(2, 2, 4, 4, requires_grad=True)
    x, noise = torch.randn(2, 2, 1, 4, 4)
    level_B = ddpm.level(torch.tensor([0.0, 0.7]))
    ddpm.loss_terms(lambda z, t: out, x, noise, level_B).loss().sum().backward()
    expected = 2 * (out.detach()[:, :1] - noise) / 16
    torch.testing.assert_close(out.grad[:, :1], expected)
    assert (out.grad[:, 1:] != 0).any()


def network(x: np.ndarray, t: float, y: float) -> np.ndarray:
    """eps and v of a smooth function, so that both are exercised."""
    eps = 0.9 * x + 0.1 * np.tanh(x) + 1e-4 * t + 0.02 * y
    return np.concatenate([eps, np.sin(3 * x + 0.5 * y)], axis=1)


def denoiser(x: Tensor, t: Tensor, y: Tensor, routing: object) -> Tensor:
    outs = [network(x[b : b + 1].numpy(), float(t[b]), float(y[b])) for b in range(len(x))]
    return torch.from_numpy(np.concatenate(outs))


def reference_image(
    steps: int, *, w: float, guided: int, seed: int, label: int, chain: bool
) -> np.ndarray:
    """x_0 by ancestral sampling of the respaced chain (Ho et al., algorithm 2; Nichol & Dhariwal,
    section 4), or by DDIM with eta = 0 (Song et al. 2021, eq. 12), with classifier-free guidance on
    the first `guided` channels of eps."""
    kept = [round(i * 999 / (steps - 1)) for i in range(steps)]
    abar = ABAR[kept]
    beta = 1 - abar / np.append(1.0, abar[:-1])
    x = draws.normal(SHAPE, "image", seed).double().numpy()[None]
    for k in reversed(range(steps)):
        x_fp32 = x.astype(np.float32)
        cond, null = (network(x_fp32, kept[k], y).astype(np.float64) for y in (label, 10))
        eps, v = cond[:, :4].copy(), cond[:, 4:]
        eps[:, :guided] = null[:, :guided] + w * (cond[:, :guided] - null[:, :guided])
        x0 = (x - math.sqrt(1 - abar[k]) * eps) / math.sqrt(abar[k])
        if not chain:
            before = abar[k - 1] if k else 1.0
            x = math.sqrt(before) * x0 + math.sqrt(1 - before) * eps
            continue
        c0, ct, low, high = posterior(beta, abar, k)
        x = c0 * x0 + ct * x
        if k:
            noise = draws.normal(SHAPE, "image", seed, "step", steps - 1 - k).double().numpy()
            x = x + np.exp(0.5 * ((v + 1) / 2 * high + (1 - v) / 2 * low)) * noise
    return x[0]


@pytest.mark.parametrize(
    ("solver", "steps", "channels", "guided", "w"),
    [
        ("ddpm", 250, "first3", 3, 1.5),
        ("ddpm", 10, "all", 4, 1.5),
        ("ddpm", 10, "all", 4, 1.0),
        ("ddim", 50, "all", 4, 1.5),
    ],
)
def test_images_are_those_of_the_formulas(
    solver: str, steps: int, channels: str, guided: int, w: float
) -> None:
    guidance = GuidanceSpec(weight=w, channels=channels)
    sampler = SamplerSpec(solver=solver, steps=steps, seed=7, labels="balanced", guidance=guidance)
    images, _ = drawn(denoiser, sampler, 3, process=ddpm, shape=SHAPE, batch=2)
    for i, image in enumerate(images.numpy()):
        expected = reference_image(
            steps, w=w, guided=guided, seed=7 + i, label=i, chain=solver == "ddpm"
        )
        np.testing.assert_allclose(image, expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(
    ("n", "steps"),
    [
        (2, [0, 999]),
        (5, [0, 250, 500, 749, 999]),
        (21, [*range(0, 500, 50), *range(499, 1000, 50)]),  # 499.5 is just missed by its sum
        (1000, list(range(1000))),
    ],
)
def test_chain_has_the_steps_of_openai(n: int, steps: list[int]) -> None:
    levels = ddpm.grid(SamplerSpec(solver="ddim", steps=n))[:-1]
    assert ddpm.step_of(levels).flip(0).tolist() == steps
    *_, place = itertools.accumulate([999 / (n - 1)] * (n // 2))
    assert steps[n // 2] == round(place)


def test_other_solvers_take_edms_levels() -> None:
    sampler = SamplerSpec(solver="heun", steps=6, sigma_min=0.05, sigma_max=10, rho=5)
    levels, edm = ddpm.grid(sampler), EDM(EDMSpec()).grid(sampler)
    assert levels[-1] == 0 and set(levels[:-1].tolist()) < set(ddpm.sigma.tolist())
    torch.testing.assert_close(levels, edm, rtol=0.02, atol=0)
