"""Flow matching: how t is drawn and falls, a direction, random steps; more in test_processes.py."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from tread_lab.config import FlowSpec, SamplerSpec
from tread_lab.diffusion import Flow, build_process
from tread_lab.diffusion.process import Network
from tread_lab.diffusion.solvers import heun

MODEL = {"depth": 2, "width": 8, "heads": 1}


def test_direction_adds_one_minus_the_cosine() -> None:
    torch.manual_seed(0)
    x, noise, v = torch.randn(3, 2, 3, 4, 4)
    t_B = torch.tensor([0.2, 0.7])
    found = Flow(FlowSpec(direction=2.0)).loss_terms(lambda z, t: v, x, noise, t_B).loss()
    u = noise - x
    cosine_B = ((v * u).sum(1) / v.norm(dim=1) / u.norm(dim=1)).mean(dim=(1, 2))
    expected_B = (v - u).square().mean(dim=(1, 2, 3)) + 2 * (1 - cosine_B)
    torch.testing.assert_close(found, expected_B)
    still = torch.zeros_like(x, requires_grad=True)
    lost = Flow(FlowSpec(direction=2.0)).loss_terms(lambda z, t: still, x, noise, t_B).loss()
    (gradient,) = torch.autograd.grad(lost.sum(), still)
    torch.testing.assert_close(gradient, -2 * u / u[0].numel())  # that of the squared error alone
    exact = Flow(FlowSpec()).loss_terms(lambda z, t: u, x, noise, t_B)
    torch.testing.assert_close(exact.denoised_BCHW, x)


def test_grid_falls_in_even_steps() -> None:
    process = build_process(FlowSpec())
    levels = process.grid(SamplerSpec(steps=3))
    assert levels.dtype == torch.float64 and levels.tolist() == pytest.approx([1, 2 / 3, 1 / 3, 0])
    last = process.grid(SamplerSpec(solver="sde", steps=3))
    assert last.dtype == torch.float64 and last.tolist() == pytest.approx([1, 0.52, 0.04, 0])


def test_quantiles_of_t() -> None:
    u = torch.tensor([0.1, 0.5, 0.9])
    torch.testing.assert_close(Flow(FlowSpec(time="uniform")).level(u), u)
    # sigmoid(N(0, 1)) at its 10%, 50% and 90% quantile: sigmoid(-+1.28155)
    t = Flow(FlowSpec()).level(u)
    torch.testing.assert_close(t, torch.tensor([0.21729, 0.5, 0.78271]), atol=1e-5, rtol=0)


def test_shift_moves_training_and_sampling_alike() -> None:
    """t' = s t / (1 + (s - 1) t): the odds of t, times s (SD3's 3 puts 0.5 at 0.75)."""
    plain, shifted = Flow(FlowSpec()), Flow(FlowSpec(shift=3.0))
    u_B = torch.rand(64, generator=torch.Generator().manual_seed(0))
    torch.testing.assert_close(shifted.level(u_B).logit(), plain.level(u_B).logit() + math.log(3))
    found = shifted.grid(SamplerSpec(steps=4)).tolist()
    assert found == pytest.approx([1, 0.9, 0.75, 0.5, 0])


def test_x_prediction_has_the_loss_of_jit() -> None:
    """In JiT's time, which runs from noise to data, with its divisor of at least 0.05."""
    x, noise, out = torch.randn(3, 4, 2, 4, 4, generator=torch.Generator().manual_seed(0))
    t_B = torch.tensor([0.9, 0.4, 0.06, 0.01])
    terms = Flow(FlowSpec(prediction="x")).loss_terms(lambda z, t: out, x, noise, t_B)
    to_data = (1 - t_B)[:, None, None, None]
    z, divisor = to_data * x + (1 - to_data) * noise, (1 - to_data).clamp_min(0.05)
    expected = ((x - z) / divisor - (out - z) / divisor).square().mean(dim=(1, 2, 3))
    torch.testing.assert_close(terms.loss(), expected)
    torch.testing.assert_close(terms.denoised_BCHW, out)


def test_x_and_v_are_one_network() -> None:
    """A network of v whose output is written as x has the same samples, and above t = 0.05 the same
    loss."""

    def v(z: Tensor, t: Tensor) -> Tensor:
        return torch.tanh(z) + t[:, None, None, None]

    def x(z: Tensor, t: Tensor) -> Tensor:
        return z - t.clamp_min(0.05)[:, None, None, None] * v(z, t)

    def measured(spec: FlowSpec, network: Network) -> tuple[Tensor, Tensor]:
        flow = Flow(spec)
        terms = flow.loss_terms(network, clean, noise, torch.tensor([0.05, 0.3, 1.0]))
        levels = flow.grid(SamplerSpec(steps=5))
        field = lambda z, t: flow.predict(network, z, t.expand(3))  # noqa: E731
        return terms.loss(), heun(field, noise.double(), levels, onto_0=True)  # type: ignore[arg-type]

    clean, noise = torch.randn(2, 3, 1, 4, 4, generator=torch.Generator().manual_seed(0))
    found, expected = measured(FlowSpec(prediction="x"), x), measured(FlowSpec(), v)
    torch.testing.assert_close(found, expected, atol=1e-6, rtol=1e-6)


@pytest.mark.parametrize(("then", "deviation"), [(0.3, 0.8**0.5), (0.0, 0.0)])
def test_random_step_has_its_deviation(then: float, deviation: float) -> None:
    """From t = 0.8: the mean is z - dt (v + z + (1 - t) v), the variance 2 t dt."""
    z, v = torch.tensor([1.0, -2.0]).double(), torch.tensor([0.5, 3.0]).double()
    now, end = torch.tensor([0.8, then]).double()
    mean, found = Flow(FlowSpec()).reverse(v, z, now, end)
    torch.testing.assert_close(mean, z - (0.8 - then) * (v + z + 0.2 * v))
    assert float(found) == pytest.approx(deviation)
