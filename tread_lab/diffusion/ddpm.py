"""DDPM (Ho et al. 2020) as DiT trains it: 1,000 levels, noise as target, learned variance."""

# B batch, C channels, H height, W width

from __future__ import annotations

import functools
import math
from itertools import accumulate

import torch
from torch import Tensor

from tread_lab.config.evaluation import SamplerSpec
from tread_lab.config.recipe import DDPM_LEVELS, DDPMSpec
from tread_lab.diffusion.edm import rho_grid
from tread_lab.diffusion.process import LossTerms, Network, Process

BETAS = (1e-4, 2e-2)  # of the linear schedule, at t = 1 and t = 1,000
RESPACED = ("ddpm", "ddim")  # solvers that go in even steps of t
_LEAST = 1e-12  # of a probability, before its logarithm


def respaced(n: int) -> list[int]:
    """Return t - 1 = 999 i / (n - 1), rounded: the steps of a chain of length n (Nichol & Dhariwal
    2021, section 4). As in OpenAI's code the stride is accumulated in float64, which resolves ties;
    a chain of one step starts from pure noise.
    """
    if n == 1:
        return [DDPM_LEVELS - 1]
    stride = (DDPM_LEVELS - 1) / (n - 1)
    return [round(t) for t in accumulate([stride] * (n - 1), initial=0.0)]


class DDPM(Process):
    """x_t = sqrt(abar_t) x0 + sqrt(1 - abar_t) eps, and the network predicts eps.

    The noise level is sigma_t = sqrt((1 - abar_t) / abar_t) and z = x_t / sqrt(abar_t) = x0 +
    sigma_t eps, so levels have the same meaning as in EDM. The network sees x_t and t - 1, a number
    in 0..999. A learned variance doubles its output: eps, then v (Nichol & Dhariwal 2021, eq. 15).
    """

    def __init__(self, spec: DDPMSpec) -> None:
        self.spec = spec
        beta = torch.linspace(*BETAS, DDPM_LEVELS, dtype=torch.float64)
        abar = (1 - beta).cumprod(0)
        self.sigma = ((1 - abar) / abar).sqrt()
        self._steps = functools.cache(self._steps_on)

    def _steps_on(self, device: torch.device) -> tuple[Tensor, ...]:
        """Return sigma_t, what lies between levels, sigma_{t-1}, log betatilde_t and log beta_t."""
        now, then = self.sigma, torch.cat([self.sigma.new_zeros(1), self.sigma[:-1]])
        low, high = log_variances(now, then)
        low[0] = low[1] - (1 + now[0] ** 2).log()  # betatilde_1 is 0: betatilde_2 in its place
        between = (now[1:] * now[:-1]).sqrt()
        return tuple(table.to(device) for table in (now, between, then, low, high))

    def step_of(self, level_B: Tensor) -> Tensor:
        """Return t - 1 in 0..999, of the nearest level."""
        return torch.searchsorted(self._steps(level_B.device)[1], level_B.double().contiguous())

    def level(self, u_B: Tensor) -> Tensor:
        """sigma_t with t uniform in 1..1000."""
        step_B = (u_B.double() * DDPM_LEVELS).long().clamp(0, DDPM_LEVELS - 1)
        return self._steps(u_B.device)[0][step_B].float()

    def prior(self, noise_BCHW: Tensor, level: Tensor) -> Tensor:
        """x_T ~ N(0, 1)."""
        return (1 + level**2).sqrt() * noise_BCHW

    def predict(self, network: Network, z_BCHW: Tensor, level_B: Tensor) -> Tensor:
        """Return eps(x_t; t - 1), and v after it where the variance is learned."""
        sigma = level_B.to(z_BCHW.dtype)[:, None, None, None]
        x_BCHW = z_BCHW / (1 + sigma**2).sqrt()
        return network(x_BCHW.float(), self.step_of(level_B).float()).to(z_BCHW.dtype)

    def loss_terms(
        self, network: Network, x_BCHW: Tensor, noise_BCHW: Tensor, level_B: Tensor
    ) -> LossTerms:
        """(eps_theta - eps)^2, plus, with a learned variance, the variational bound in bits with
        eps_theta detached (L_hybrid of Nichol & Dhariwal with weight 1, as in DiT's code)."""
        z_BCHW = self.noisy(x_BCHW, noise_BCHW, level_B)
        eps, v = self._parts(self.predict(network, z_BCHW, level_B), x_BCHW.shape[1])
        error_BCHW = (eps - noise_BCHW).square()
        if v is not None:
            error_BCHW = error_BCHW + self._bits(eps.detach(), v, x_BCHW, noise_BCHW, level_B)
        denoised_BCHW = z_BCHW - level_B[:, None, None, None].to(eps) * eps
        return LossTerms(x_BCHW, z_BCHW, denoised_BCHW, error_BCHW, torch.ones_like(level_B))

    def velocity(self, prediction_BCHW: Tensor, z_BCHW: Tensor, level: Tensor) -> Tensor:
        """dz/dsigma = eps: an Euler step is a DDIM step (Song et al. 2021, eq. 14)."""
        return self._parts(prediction_BCHW, z_BCHW.shape[1])[0]

    def reverse(
        self, prediction_BCHW: Tensor, z_BCHW: Tensor, now: Tensor, then: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Mean and deviation of p(z_then | z_now); without a learned variance, the variance is
        beta."""
        eps, v = self._parts(prediction_BCHW, z_BCHW.shape[1])
        kept = (then / now) ** 2
        mean_BCHW = kept * z_BCHW + (1 - kept) * (z_BCHW - now * eps)
        if then == 0:
            return mean_BCHW, torch.zeros_like(mean_BCHW)
        low, high = log_variances(now, then)
        log_variance = high if v is None else _between(v, low, high)
        return mean_BCHW, (log_variance / 2).exp()

    def grid(self, sampler: SamplerSpec) -> Tensor:
        """For `ddpm` and `ddim` levels in even steps of t; for other solvers the levels nearest to
        EDM's grid (Karras et al. 2022, appendix C.3). Then 0."""
        if sampler.solver in RESPACED:
            steps = torch.tensor(respaced(sampler.steps)).flip(0)
        else:
            steps = self.step_of(rho_grid(sampler)[:-1])
        return torch.cat([self.sigma[steps], self.sigma.new_zeros(1)])

    def _parts(self, out_BCHW: Tensor, C: int) -> tuple[Tensor, Tensor | None]:
        """Return eps, and v or `None`."""
        return out_BCHW[:, :C], out_BCHW[:, C:] if self.spec.learned_variance else None

    def _bits(
        self, eps: Tensor, v: Tensor, x_BCHW: Tensor, noise_BCHW: Tensor, level_B: Tensor
    ) -> Tensor:
        """Return L_{t-1} = KL(q(z_{t-1} | z_t, x0) || p) of every element, at t = 1 -log p(x0)."""
        step_B = self.step_of(level_B)
        _, _, *steps = self._steps(level_B.device)
        then, low, high = (table[step_B].to(eps.dtype)[:, None, None, None] for table in steps)
        now = level_B.to(eps.dtype)[:, None, None, None]
        log_variance = _between(v, low, high)
        apart = (1 - (then / now) ** 2) * now * (eps - noise_BCHW)  # of the two means
        kl = log_variance - low + (low - log_variance).exp() - 1
        kl = (kl + apart.square() * (-log_variance).exp()) / 2
        nll = _discretised(x_BCHW, x_BCHW - now * (eps - noise_BCHW), log_variance / 2)
        return torch.where(step_B[:, None, None, None] == 0, nll, kl) / math.log(2)


def log_variances(now: Tensor, then: Tensor) -> tuple[Tensor, Tensor]:
    """Return log betatilde and log beta of the step between two levels, as variances of z_then.

    In terms of x, scaled by sqrt(abar_then), beta = 1 - abar_now / abar_then and betatilde = beta
    (1 - abar_then) / (1 - abar_now).
    """
    step = now**2 - then**2
    return (step * (then / now) ** 2).log(), (step * (1 + then**2) / (1 + now**2)).log()


def _between(v: Tensor, low: Tensor, high: Tensor) -> Tensor:
    """Return log betatilde at v = -1, log beta at v = 1, and what lies between."""
    share = (v + 1) / 2
    return share * high + (1 - share) * low


def _discretised(x: Tensor, mean: Tensor, log_deviation: Tensor) -> Tensor:
    """Return - log of the Gaussian's mass in the bin of x, of 255 bins in [-1, 1] with open ends.

    The distribution function is approximated as in Ho et al.'s code.
    """
    upper = _normal_cdf((x - mean + 1 / 255) * (-log_deviation).exp())
    lower = _normal_cdf((x - mean - 1 / 255) * (-log_deviation).exp())
    mass = torch.where(x < -0.999, upper, torch.where(x > 0.999, 1 - lower, upper - lower))
    return -mass.clamp(min=_LEAST).log()


def _normal_cdf(x: Tensor) -> Tensor:
    return (1 + torch.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3))) / 2
