"""EDM (Karras et al. 2022): preconditioning, noise distribution, loss weight and noise grid."""

# B batch, C channels, H height, W width

from __future__ import annotations

import torch
from torch import Tensor

from tread_lab.config.evaluation import SamplerSpec
from tread_lab.config.recipe import EDMSpec
from tread_lab.diffusion.process import LossTerms, Network, Process


class EDM(Process):
    """Denoiser D(z; sigma) around a raw network F, with data of deviation sigma_data."""

    def __init__(self, spec: EDMSpec) -> None:
        self.spec = spec

    def level(self, u_B: Tensor) -> Tensor:
        """sigma with ln(sigma) ~ N(P_mean, P_std^2), at quantile u."""
        z: Tensor = torch.special.ndtri(u_B.double().clamp(1e-7, 1 - 1e-7))
        return (self.spec.p_mean + self.spec.p_std * z).exp().float()

    def prior(self, noise_BCHW: Tensor, level: Tensor) -> Tensor:
        """sigma n."""
        return level * noise_BCHW

    def predict(self, network: Network, z_BCHW: Tensor, level_B: Tensor) -> Tensor:
        """D(z; sigma) = c_skip z + c_out F(c_in z; c_noise) (eq. 7, table 1)."""
        sd = self.spec.sigma_data
        sigma = level_B.to(z_BCHW.dtype)[:, None, None, None]
        c_skip = sd**2 / (sigma**2 + sd**2)
        c_out = sigma * sd / (sigma**2 + sd**2).sqrt()
        c_in = 1 / (sigma**2 + sd**2).sqrt()
        c_noise_B = level_B.log() / 4
        F = network((c_in * z_BCHW).float(), c_noise_B.float())
        return c_skip * z_BCHW + c_out * F.to(z_BCHW.dtype)

    def loss_terms(
        self, network: Network, x_BCHW: Tensor, noise_BCHW: Tensor, level_B: Tensor
    ) -> LossTerms:
        """(D - x)^2 and lambda(sigma) = (sigma^2 + sigma_data^2) / (sigma sigma_data)^2 (eq. 2)."""
        sd = self.spec.sigma_data
        weight_B = (level_B**2 + sd**2) / (level_B * sd) ** 2
        z_BCHW = self.noisy(x_BCHW, noise_BCHW, level_B)
        D = self.predict(network, z_BCHW, level_B)
        return LossTerms(x_BCHW, z_BCHW, D, (D - x_BCHW).square(), weight_B)

    def velocity(self, prediction_BCHW: Tensor, z_BCHW: Tensor, level: Tensor) -> Tensor:
        """dz/dsigma = (z - D) / sigma (eq. 3)."""
        return (z_BCHW - prediction_BCHW) / level

    def grid(self, sampler: SamplerSpec) -> Tensor:
        """sigma_i of `rho_grid`."""
        return rho_grid(sampler)


def rho_grid(sampler: SamplerSpec) -> Tensor:
    """sigma_i = (sigma_max^(1/rho) + i/(n-1) (sigma_min^(1/rho) - sigma_max^(1/rho)))^rho, then 0
    (eq. 5)."""
    n, rho = sampler.steps, sampler.rho
    ramp = torch.linspace(0, 1, n, dtype=torch.float64)
    high, low = sampler.sigma_max ** (1 / rho), sampler.sigma_min ** (1 / rho)
    sigma = (high + ramp * (low - high)) ** rho
    return torch.cat([sigma, sigma.new_zeros(1)])
