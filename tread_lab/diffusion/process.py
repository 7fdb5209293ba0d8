"""What a diffusion process is: levels, a loss per sample, and the ODE or chain that generates."""

# B batch, C channels, H height, W width

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from torch import Tensor

from tread_lab.config.evaluation import SamplerSpec

# network(x_BCHW, t_B) -> raw output; labels and routing are bound by the caller.
Network = Callable[[Tensor, Tensor], Tensor]


@dataclass(frozen=True)
class LossTerms:
    """Elementwise results of one forward pass on a batch, the input of losses.

    Attributes:
        clean_BCHW, noisy_BCHW: x0 and z.
        denoised_BCHW: the estimate of x0.
        error_BCHW: the process's squared error, unweighted.
        weight_B: the weight of each sample's noise level.
        velocity_BCHW: v of a flow.
    """

    clean_BCHW: Tensor
    noisy_BCHW: Tensor
    denoised_BCHW: Tensor
    error_BCHW: Tensor
    weight_B: Tensor
    velocity_BCHW: Tensor | None = None

    def loss(self) -> Tensor:
        """loss_B: the weighted error, a mean over all elements of a sample."""
        return self.weight_B * self.error_BCHW.mean(dim=(1, 2, 3))


class Process(Protocol):
    """A noise level is a positive number that grows with the noise; u is uniform in [0, 1)."""

    def level(self, u_B: Tensor) -> Tensor:
        """Return noise levels whose quantiles in the training distribution are `u_B`."""
        ...

    def loss_terms(
        self, network: Network, x_BCHW: Tensor, noise_BCHW: Tensor, level_B: Tensor
    ) -> LossTerms:
        """Return the loss terms of a forward pass on samples at their noise levels."""
        ...

    def predict(self, network: Network, z_BCHW: Tensor, level_B: Tensor) -> Tensor:
        """Return the quantity that guidance combines, at the noisy samples z.

        Further channels after the C of a sample are a learned variance, unaffected by guidance.
        """
        ...

    def velocity(self, prediction_BCHW: Tensor, z_BCHW: Tensor, level: Tensor) -> Tensor:
        """dz/dlevel of the probability-flow ODE."""
        ...

    def noisy(self, x_BCHW: Tensor, noise_BCHW: Tensor, level_B: Tensor) -> Tensor:
        """Return noisy samples at their levels: by default x + sigma n."""
        return x_BCHW + level_B[:, None, None, None].to(x_BCHW.dtype) * noise_BCHW

    def prior(self, noise_BCHW: Tensor, level: Tensor) -> Tensor:
        """Return z at the highest level of a grid, from which an image is generated."""
        ...

    def grid(self, sampler: SamplerSpec) -> Tensor:
        """Return sampler.steps + 1 levels from pure noise to 0, float64."""
        ...

    def reverse(
        self, prediction_BCHW: Tensor, z_BCHW: Tensor, now: Tensor, then: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Return mean and deviation of z after a random step to the lower level `then`; the
        deviation is 0 at level 0."""
        raise AssertionError(type(self))
