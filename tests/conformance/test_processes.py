"""Every process agrees with the closed form on Gaussian data, where everything can be solved."""

# B batch, C channels, H height, W width

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping
from types import MappingProxyType

import pytest
import torch
from torch import Tensor

from tests.diffusion.images import drawn
from tread_lab.config import DDPMSpec, EDMSpec, FlowSpec, SamplerSpec
from tread_lab.diffusion import Network, Process, build_process
from tread_lab.diffusion.solvers import SOLVERS

MU, S = 0.2, 0.3  # data x ~ N(MU, S^2), every element on its own
SHAPE = (1, 4, 4)


def assert_moments(x: Tensor, mean: float, deviation: float) -> None:
    """Within four deviations of the mean and the deviation of as many numbers."""
    assert x.mean() == pytest.approx(mean, abs=4 * S / math.sqrt(x.numel()))
    assert x.std() == pytest.approx(deviation, rel=4 / math.sqrt(2 * x.numel()))


class ProcessConformance:
    """Noisy samples are z = a x + b eps; a subclass says what a, b and the network's output are."""

    process: Process
    # of the grid on which the order of a solver is seen
    span: Mapping[str, float] = MappingProxyType({})

    def ab(self, level: Tensor) -> tuple[Tensor, Tensor]:
        raise NotImplementedError

    def network(self) -> Network:
        """The raw network whose prediction is the best there can be."""
        raise NotImplementedError

    def risk(self, level_B: Tensor) -> Tensor:
        """The loss that no network can go below."""
        raise NotImplementedError

    def posterior(self, z: Tensor, level: Tensor) -> tuple[Tensor, Tensor]:
        """E[x | z] and E[eps | z]."""
        a, b = self.ab(level)
        centred = (z - a * MU) / (a**2 * S**2 + b**2)
        return MU + a * S**2 * centred, b * centred

    def exact(self, z: Tensor, start: Tensor, end: Tensor) -> Tensor:
        """The probability flow of a Gaussian scales what is around its mean."""
        (a0, b0), (a1, b1) = self.ab(start), self.ab(end)
        scale = ((a1**2 * S**2 + b1**2) / (a0**2 * S**2 + b0**2)).sqrt()
        return a1 * MU + scale * (z - a0 * MU)

    def velocity(self, z: Tensor, level: Tensor) -> Tensor:
        level_B = level.expand(len(z))
        return self.process.velocity(self.process.predict(self.network(), z, level_B), z, level)

    def draw(self, count: int) -> tuple[Tensor, Tensor]:
        noise = torch.randn(2, count, *SHAPE, generator=torch.Generator().manual_seed(0))
        return MU + S * noise[0], noise[1]

    @pytest.mark.parametrize("u", [0.03, 0.3, 0.5, 0.7, 0.97])
    def test_the_optimal_predictor_has_no_excess_loss(self, u: float) -> None:
        x, noise = self.draw(4000)
        level_B = self.process.level(torch.full((len(x),), u))
        loss_B = self.process.loss_terms(self.network(), x, noise, level_B).loss()
        error = 4 * loss_B.std() / math.sqrt(len(x))
        assert abs(loss_B.mean() - self.risk(level_B)[0]) < error

    @pytest.mark.parametrize(("solver", "order"), [("euler", 1), ("heun", 2)])
    def test_a_solver_has_the_order_it_promises(self, solver: str, order: int) -> None:
        """Halving the steps divides the error by 2^order; the step onto level 0 is left out."""
        z = torch.linspace(-2, 2, 16, dtype=torch.float64).view(1, *SHAPE)
        errors = []
        for steps in (32, 64, 128):
            levels = self.process.grid(SamplerSpec(steps=steps, **self.span))[:-1]
            start = self.process.noisy(torch.zeros_like(z), z, levels[:1])
            end = SOLVERS[solver](self.velocity, start, levels)
            errors.append(float((end - self.exact(start, levels[0], levels[-1])).abs().max()))
        for coarse, fine in itertools.pairwise(errors):
            assert math.log2(coarse / fine) == pytest.approx(order, abs=0.25)

    def drawn(self, sampler: SamplerSpec, count: int) -> Tensor:
        network = self.network()
        return drawn(lambda x, t, y, _: network(x, t), sampler, count, process=self.process)[0]

    def test_samples_have_the_distribution_of_the_data(self) -> None:
        assert_moments(self.drawn(SamplerSpec(solver="heun", steps=40), 1000), MU, S)

    def test_noise_maps_to_its_own_sample(self) -> None:
        """All processes agree: the noise eps becomes MU + S eps (EDM but for its finite sigma)."""
        noise = self.draw(8)[1].double()
        levels = self.process.grid(SamplerSpec(steps=120))
        start = self.process.noisy(torch.zeros_like(noise), noise, levels[:1])
        x = SOLVERS["heun"](self.velocity, start, levels)
        torch.testing.assert_close(x, MU + S * noise, atol=2e-3, rtol=0)

    def test_levels_grow_and_grid_ends_at_zero(self) -> None:
        level_B = self.process.level(torch.linspace(0, 0.999, 50))
        assert (level_B > 0).all() and (level_B.diff() > 0).all()
        grid = self.process.grid(SamplerSpec(steps=7))
        assert len(grid) == 8 and grid.dtype == torch.float64
        assert (grid.diff() < 0).all() and grid[-1] == 0


class TestEDM(ProcessConformance):
    process = build_process(EDMSpec())

    def ab(self, level: Tensor) -> tuple[Tensor, Tensor]:
        return torch.ones_like(level), level

    def network(self) -> Network:
        sd = 0.5

        def F(x_BCHW: Tensor, t_B: Tensor) -> Tensor:
            sigma = (4 * t_B.double()).exp()[:, None, None, None]
            total = sigma**2 + sd**2
            z = x_BCHW * total.sqrt()
            D, _ = self.posterior(z, sigma)
            return (D - sd**2 / total * z) * total.sqrt() / (sigma * sd)

        return F

    def risk(self, level_B: Tensor) -> Tensor:
        weight_B = (level_B**2 + 0.25) / (level_B * 0.5) ** 2
        return weight_B * S**2 * level_B**2 / (S**2 + level_B**2)


class TestFlow(ProcessConformance):
    process = build_process(FlowSpec())

    def ab(self, level: Tensor) -> tuple[Tensor, Tensor]:
        return 1 - level, level

    def network(self) -> Network:
        def v(z_BCHW: Tensor, t_B: Tensor) -> Tensor:
            x, eps = self.posterior(z_BCHW, t_B.double()[:, None, None, None])
            return eps - x

        return v

    def risk(self, level_B: Tensor) -> Tensor:
        """Var(eps - x | z) = S^2 / ((1 - t)^2 S^2 + t^2)."""
        return S**2 / ((1 - level_B) ** 2 * S**2 + level_B**2)


class TestDDPM(ProcessConformance):
    process = build_process(DDPMSpec(learned_variance=False))
    span = MappingProxyType({"sigma_min": 0.3, "sigma_max": 20.0})

    def ab(self, level: Tensor) -> tuple[Tensor, Tensor]:
        return torch.ones_like(level), level

    def network(self) -> Network:
        beta = torch.linspace(1e-4, 0.02, 1000, dtype=torch.float64)
        abar = (1 - beta).cumprod(0)

        def eps(x_BCHW: Tensor, t_B: Tensor) -> Tensor:
            abar_B = abar[t_B.long()][:, None, None, None]
            return self.posterior(x_BCHW / abar_B.sqrt(), ((1 - abar_B) / abar_B).sqrt())[1]

        return eps

    def risk(self, level_B: Tensor) -> Tensor:
        """Var(eps | z) = S^2 / (S^2 + sigma^2)."""
        return S**2 / (S**2 + level_B**2)

    def test_random_steps_keep_the_distribution(self) -> None:
        assert_moments(self.drawn(SamplerSpec(solver="ddpm", steps=100), 100), MU, S)


def test_sde_has_the_moments_of_linear_steps() -> None:
    """On N(MU, S^2) a step of SiT's SDE is linear, so that mean and variance follow exactly."""
    sampler = SamplerSpec(solver="sde", steps=250)
    levels = TestFlow.process.grid(sampler)
    assert len(levels) == 251 and levels[0] == 1 and levels[-1] == 0
    assert float(levels[-2]) == pytest.approx(0.04)
    mean, variance = 0.0, 1.0
    for now, then in itertools.pairwise(levels.tolist()):
        # dz = (v + eps) dt, v + eps = 2 E[eps | z] - E[x | z], linear: p + q z; w_t = sigma_t = t
        total = (1 - now) ** 2 * S**2 + now**2
        q = (2 * now - (1 - now) * S**2) / total
        p = -MU - q * (1 - now) * MU
        mean = mean - (now - then) * (p + q * mean)
        variance = variance * (1 - (now - then) * q) ** 2
        variance += 2 * now * (now - then) if then > 0 else 0.0
    assert_moments(TestFlow().drawn(sampler, 150), mean, math.sqrt(variance))
    assert mean == pytest.approx(MU, abs=0.01) and math.sqrt(variance) == pytest.approx(S, rel=0.05)
