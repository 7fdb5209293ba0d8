"""Flow matching (SiT, Ma et al. 2024): straight paths from data to noise and their velocity."""

# B batch, C channels, H height, W width

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor

from tread_lab.config.errors import lookup
from tread_lab.config.evaluation import SamplerSpec
from tread_lab.config.recipe import FlowSpec
from tread_lab.diffusion.process import LossTerms, Network, Process

# The inverse of each distribution of t; logit_normal is sigmoid(N(0, 1)).
TIMES: dict[str, Callable[[Tensor], Tensor]] = {
    "logit_normal": lambda u_B: torch.special.ndtri(u_B).sigmoid(),
    "uniform": lambda u_B: u_B,
}
LEAST_T = 0.05  # of the divisor that makes v of x (Li & He 2025)


class Flow(Process):
    """The noise level is t in [0, 1]: z_t = (1 - t) x + t eps, and the network predicts v or x."""

    def __init__(self, spec: FlowSpec) -> None:
        self.spec = spec

    def level(self, u_B: Tensor) -> Tensor:
        """t at quantile u of its training distribution, shifted."""
        u_B = u_B.double().clamp(1e-7, 1 - 1e-7)
        return self._shifted(lookup(TIMES, self.spec.time, "process.time")(u_B)).float()

    def _shifted(self, t: Tensor) -> Tensor:
        """t' = s t / (1 + (s - 1) t) (Esser et al. 2024, eq. 23)."""
        s = self.spec.shift
        return s * t / (1 + (s - 1) * t)

    def noisy(self, x_BCHW: Tensor, noise_BCHW: Tensor, level_B: Tensor) -> Tensor:
        """(1 - t) x + t eps."""
        t = level_B[:, None, None, None].to(x_BCHW)
        return (1 - t) * x_BCHW + t * noise_BCHW

    def prior(self, noise_BCHW: Tensor, level: Tensor) -> Tensor:
        """eps, the sample at t = 1."""
        return level * noise_BCHW

    def predict(self, network: Network, z_BCHW: Tensor, level_B: Tensor) -> Tensor:
        """v(z; t), or (z - x) / t if the network predicts x; t enters the embedder unscaled."""
        out_BCHW = network(z_BCHW.float(), level_B.float()).to(z_BCHW.dtype)
        if self.spec.prediction == "v":
            return out_BCHW
        return (z_BCHW - out_BCHW) / self._divisor(level_B, z_BCHW)

    def _divisor(self, level_B: Tensor, z_BCHW: Tensor) -> Tensor:
        """t, for a network that predicts x at least `LEAST_T`."""
        least = LEAST_T if self.spec.prediction == "x" else 0.0
        return level_B[:, None, None, None].to(z_BCHW).clamp(min=least)

    def loss_terms(
        self, network: Network, x_BCHW: Tensor, noise_BCHW: Tensor, level_B: Tensor
    ) -> LossTerms:
        """(v - u)^2 with weight 1, u = eps - x = (z - x) / t; the estimate of x is z - t v.

        A `direction` adds 1 - cos(v, eps - x) over the channels of each place (LightningDiT).
        """
        z_BCHW = self.noisy(x_BCHW, noise_BCHW, level_B)
        v = self.predict(network, z_BCHW, level_B)
        t, target_BCHW = self._divisor(level_B, z_BCHW), noise_BCHW - x_BCHW
        if self.spec.prediction == "x":
            target_BCHW = (z_BCHW - x_BCHW) / t
        error_BCHW = (v - target_BCHW).square()
        if self.spec.direction:
            # Where v is 0, as at a zero start, it has no direction, and a gradient up to 1e8.
            cosine_BHW = F.cosine_similarity(v, target_BCHW, dim=1) * v.any(dim=1)
            error_BCHW = error_BCHW + self.spec.direction * (1 - cosine_BHW)[:, None]
        denoised_BCHW = z_BCHW - t * v
        return LossTerms(x_BCHW, z_BCHW, denoised_BCHW, error_BCHW, torch.ones_like(level_B), v)

    def velocity(self, prediction_BCHW: Tensor, z_BCHW: Tensor, level: Tensor) -> Tensor:
        """dz/dt = v."""
        return prediction_BCHW

    def reverse(
        self, prediction_BCHW: Tensor, z_BCHW: Tensor, now: Tensor, then: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Mean and deviation of an Euler-Maruyama step of dz = (v - w s) dt + sqrt(2 w) dW with
        w = sigma_t = t in SiT's code (its paper's w_t is 2 w); s = -(z + (1 - t) v) / t."""
        v, dt = prediction_BCHW, now - then
        eps = z_BCHW + (1 - now) * v  # w s = - eps
        mean_BCHW = z_BCHW - dt * (v + eps)
        deviation = (2 * now * dt).sqrt() if then > 0 else torch.zeros_like(now)
        return mean_BCHW, deviation

    def grid(self, sampler: SamplerSpec) -> Tensor:
        """t from 1 to 0 in even steps, except a last step of another size if given; then
        shifted."""
        n, last = sampler.steps, sampler.last_step
        t = torch.linspace(1, 0 if last is None else last, n + (last is None), dtype=torch.float64)
        return self._shifted(t if last is None else torch.cat([t, t.new_zeros(1)]))
