"""Exponential moving average of the trainable weights, in one fused update."""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor, nn


@torch.no_grad()
def follow(
    averages: Iterable[Tensor], values: Iterable[Tensor], decay: float, skipped: Tensor | None
) -> None:
    """Change each average to decay average + (1 - decay) value, unless the step was skipped."""
    ema, live = list(averages), list(values)
    if skipped is None:
        torch._foreach_lerp_(ema, live, 1 - decay)
        return
    change = torch._foreach_sub(live, ema)
    torch._foreach_mul_(change, (1 - decay) * (~skipped).float())
    torch._foreach_add_(ema, change)


class Ema:
    """theta_ema <- decay theta_ema + (1 - decay) theta, from step 0 on."""

    def __init__(self, network: nn.Module, decay: float) -> None:
        self.decay = decay
        self._live = {n: p for n, p in network.named_parameters() if p.requires_grad}
        self.weights: dict[str, Tensor] = {n: p.detach().clone() for n, p in self._live.items()}

    @torch.no_grad()
    def update(self, skipped: Tensor | None = None) -> None:
        """One update, or none if the step was `skipped`, which is known on the device alone."""
        follow(self.weights.values(), self._live.values(), self.decay, skipped)

    @torch.no_grad()
    def load(self, weights: dict[str, Tensor]) -> None:
        for name, tensor in self.weights.items():
            tensor.copy_(weights[name])
