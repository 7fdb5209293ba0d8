"""Guidance as one weighted sum of branches (weight, network, labels, routing), gated by level."""

# B batch, C channels, H height, W width, K kept tokens

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from tread_lab.config.guidance import BranchSpec, GuidanceSpec
from tread_lab.diffusion.process import Process
from tread_lab.routing.select import BatchRoute, Routing

# denoiser(x_BCHW, t_B, y_B, routing) -> raw output
Denoiser = Callable[[Tensor, Tensor, Tensor, Routing | None], Tensor]


# Of a term on guided channels, on others, and on those of a learned variance, of which the strong
# branch's is taken.
Weights = tuple[float, float, float]


@dataclass(frozen=True)
class Term:
    """One term of the sum in the spec, with its current selection rate."""

    weights: Weights
    branch: BranchSpec
    rate: float


@dataclass(frozen=True)
class Branch:
    """One evaluated term of the sum: `network` at `labels_B` and `routing`, times its weights."""

    weights: Weights
    network: Denoiser
    labels_B: Tensor
    routing: Routing | None = None


def acting(spec: GuidanceSpec, level: float, progress: float) -> list[Term]:
    """Return the terms of w D_strong + (1 - w) D_weak at one noise level.

    Outside the interval only the strong branch acts. On unguided channels its weight is 1.

    Args:
        progress: sampling progress, 0 at pure noise and 1 at the last call.
    """
    w = spec.weight
    inside = spec.interval is None or spec.interval[0] <= level <= spec.interval[1]
    rates = [branch.rate.at(progress) for branch in spec.branches]
    if len(spec.branches) == 1 or not inside:
        return [Term((1.0, 1.0, 1.0), spec.strong, rates[0])]
    guided, strong = (w, 1 - w), (1.0, 0.0)
    weights = zip(guided, {"first3": strong, "all": guided}[spec.channels], strong)
    return [Term(*term) for term in zip(weights, spec.branches, rates)]


def guided(process: Process, branches: Sequence[Branch], z_BCHW: Tensor, level: Tensor) -> Tensor:
    """Return the weighted sum of the branches' predictions.

    Levels and weights are created on the device, because copies from the host would synchronize.
    """
    level_B = z_BCHW.new_full((len(z_BCHW),), float(level), dtype=level.dtype)
    outs = predictions(process, branches, z_BCHW, level_B)
    total = torch.zeros_like(outs[0])
    for branch, out in zip(branches, outs):
        C, channels = z_BCHW.shape[1], out.shape[1]
        numbers = (min(C, 3), C - 3, channels - C)
        weights = [w for w, n in zip(branch.weights, numbers) for _ in range(n)]
        total = total + _weight((*weights,), out.dtype, out.device) * out
    return total


@functools.lru_cache(maxsize=64)
def _weight(weights: tuple[float, ...], dtype: torch.dtype, device: torch.device) -> Tensor | float:
    """Return a number, or one per channel [C, 1, 1] where only some are guided."""
    if len(set(weights)) == 1:
        return weights[0]
    return torch.tensor(weights, dtype=dtype, device=device)[:, None, None]


def predictions(
    process: Process, branches: Sequence[Branch], z_BCHW: Tensor, level_B: Tensor
) -> list[Tensor]:
    """Return every branch's prediction; equal networks and shapes share a forward pass."""
    groups: dict[object, list[int]] = {}
    for k, branch in enumerate(branches):
        groups.setdefault((id(branch.network), _shapes(branch.routing)), []).append(k)
    outs: list[Tensor] = [z_BCHW] * len(branches)
    for members in groups.values():
        together = [branches[k] for k in members]
        for k, out in zip(members, _together(process, together, z_BCHW, level_B)):
            outs[k] = out
    return outs


def _together(
    process: Process, branches: Sequence[Branch], z_BCHW: Tensor, level_B: Tensor
) -> Sequence[Tensor]:
    """Predictions of branches that differ in labels and kept tokens alone, in one pass."""
    network, times = branches[0].network, len(branches)
    labels = torch.cat([branch.labels_B for branch in branches])
    routes = zip(*(branch.routing or () for branch in branches))
    routing = tuple(_joined(same) for same in routes) or None
    z, level = torch.cat([z_BCHW] * times), torch.cat([level_B] * times)
    out = process.predict(lambda x, t: network(x, t, labels, routing), z, level)
    return out.chunk(times)


def _joined(routes: Sequence[BatchRoute]) -> BatchRoute:
    """Return one route of several batches in a row; which tensors it has is the same for all."""
    names = [name for name, x in vars(routes[0]).items() if isinstance(x, Tensor)]
    joined: dict[str, Any] = {n: torch.cat([vars(route)[n] for route in routes]) for n in names}
    return replace(routes[0], **joined)


def _shapes(routing: Routing | None) -> tuple[object, ...]:
    return tuple((route.keep_BK.shape[1], route.real_BK is None) for route in routing or ())
